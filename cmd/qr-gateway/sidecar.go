package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/user"
	"strconv"

	"github.com/spf13/cobra"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm"
	"qr-gateway/backends/vllm/plugin"
	"qr-gateway/backends/vllm/sidecar"
	"qr-gateway/gateway/config"
)

// sidecars makes those that the models of cfg name. Nothing is started but for the socket that plugins dial.
func (d *backendDeps) sidecars(cfg config.Config) (parts []part, err error) {
	d.choices = map[string]vllm.Choices{}
	for _, address := range samplerAddresses(cfg.Models) {
		if d.choices[address] != nil {
			continue
		}
		choices, run, err := d.sampler(cfg, address)
		if err != nil {
			return nil, err
		}
		d.choices[address], parts = choices, append(parts, part{"sidecar", run})
	}
	return parts, nil
}

// sampler is the sidecar at an address; none is this process.
func (d *backendDeps) sampler(cfg config.Config, address string) (vllm.Choices, func(context.Context) error, error) {
	if address == "" {
		own, err := d.newSidecar(cfg)
		if err != nil {
			return nil, nil, err
		}
		d.side = own
		return own, own.Run, nil
	}
	far, err := sidecar.NewClient(cfg.Sidecar.Client(address), d.log)
	if err != nil {
		return nil, nil, err
	}
	return far, far.Run, nil
}

// samplerAddresses are the addresses of the sidecars of all models on vLLM.
func samplerAddresses(models []config.Model) []string {
	var out []string
	for _, m := range models {
		for _, member := range m.Backends() {
			if member.Model.Backend == config.BackendVLLM {
				out = append(out, member.Model.VLLM.Sidecar)
			}
		}
	}
	return out
}

func (d *backendDeps) newSidecar(cfg config.Config) (*sidecar.Server, error) {
	uids, err := userNumbers(cfg.Sidecar.Users)
	if err != nil {
		return nil, err
	}
	own, err := sidecar.New(cfg.Sidecar.Server(version(), uids), sidecar.Deps{Sources: d.numbers, Log: d.log})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		err = &backends.Error{
			Message: err.Error(), Err: err,
			Hint: "make its folder, or set sidecar.socket to a path that may be written to, and QR_SIDECAR of vLLM to the same",
		}
	}
	return own, err
}

// userNumbers finds the numbers of users.
func userNumbers(users []string) ([]int, error) {
	var out []int
	for i, name := range users {
		n, err := strconv.Atoi(name)
		if err != nil {
			u, found := user.Lookup(name)
			if found != nil {
				return nil, fmt.Errorf("sidecar.users[%d]: there is no user %q on this machine: %w", i, name, found)
			}
			if n, err = strconv.Atoi(u.Uid); err != nil {
				return nil, fmt.Errorf("sidecar.users[%d]: the user %q has no number", i, name)
			}
		}
		out = append(out, n)
	}
	return out, nil
}

// newPlugin makes the command that writes the plugin.
func newPlugin() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "plugin", Short: "write the plugin for vLLM into a folder", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := plugin.Write(out)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\nstart vLLM with PYTHONPATH=%s and --logits-processors %s\n", path, out, plugin.Class)
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", ".", "`FOLDER` to write it into")
	return cmd
}
