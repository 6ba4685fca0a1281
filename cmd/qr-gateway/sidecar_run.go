package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"

	"github.com/spf13/cobra"

	"qr-gateway/backends/supply"
	"qr-gateway/gateway/config"
	"qr-gateway/gateway/observe"
	"qr-gateway/gateway/sources"
)

const sidecarExample = `  qr-gateway sidecar plugin --out /opt/qr
  qr-gateway sidecar --socket /run/qr-gateway/sidecar.sock
  QR_SIDECAR=/run/qr-gateway/sidecar.sock PYTHONPATH=/opt/qr vllm serve MODEL --logits-processors qr_vllm:Processor`

// newSidecarCommand makes the command that chooses tokens for a vLLM beside it.
func newSidecarCommand() *cobra.Command {
	var file, socket, listen, probes string
	cmd := &cobra.Command{
		Use:   "sidecar",
		Short: "choose tokens for vLLM, by its plugin",
		Long: "sidecar is the sampler with its entropy sources, for the plugin in a vLLM on this machine: `serve` and `worker` have it in them, this is for one that\n" +
			"stands by itself, e.g. beside vLLM in its pod. Of the configuration it takes entropy, process and sidecar; there need not be one. See docs/vllm.md.",
		Example: sidecarExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(config.Options{File: file, Env: os.Environ(), Flags: cmd.Flags(), Backends: backendNames(), Modelless: true})
			if err != nil {
				return err
			}
			if socket != "" {
				cfg.Sidecar.Socket = socket
			}
			if listen != "" {
				cfg.Sidecar.Listen = listen
			}
			return runSidecar(cmd.Context(), cfg, probes, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "config", "", "YAML `FILE`")
	f.StringVar(&socket, "socket", "", "`PATH` of the Unix socket that the plugin dials (sidecar.socket)")
	f.StringVar(&listen, "grpc", "", "`ADDRESS` for gateways elsewhere, HOST:PORT or unix:///PATH (sidecar.listen)")
	f.StringVar(&probes, "probes", "", "`HOST:PORT` of /healthz and /metrics (default: none)")
	config.AddFlags(f)
	for _, name := range []string{"listen", "engine", "model"} {
		_ = f.MarkHidden(name) // they are for models and the endpoint
	}
	cmd.AddCommand(newPlugin())
	return cmd
}

// runSidecar chooses tokens until ctx ends.
func runSidecar(ctx context.Context, cfg config.Config, probes string, stdout, stderr io.Writer) error {
	log, err := observe.NewLog(observe.LogConfig{Level: cfg.Log.Level, Format: cfg.Log.Format}, stderr)
	if err != nil {
		return err
	}
	lent, err := sources.Open(ctx, sourcesConfig(cfg), sources.Deps{Log: log})
	if err != nil {
		return err
	}
	parts, err := sidecarParts(ctx, cfg, lent, probes, stdout, log)
	if err != nil {
		return errors.Join(err, lent.Close())
	}
	notifyReady(ctx, log)
	return runStack(ctx, parts...)
}

// sidecarParts makes the sidecar and what it stands on, in the order in which they start.
func sidecarParts(ctx context.Context, cfg config.Config, lent *sources.Sources, probes string, stdout io.Writer, log *slog.Logger) ([]part, error) {
	own, err := borrow(lent.Socket(), log)
	if err != nil {
		return nil, err
	}
	d := backendDeps{log: log, numbers: supply.New(own)}
	side, err := d.newSidecar(cfg)
	if err != nil {
		return nil, err
	}
	parts := []part{{"entropy", lent.Run}, {"numbers", own.Run}, {"sidecar", side.Run}}
	if cfg.Sidecar.Socket != "" {
		fmt.Fprintf(stdout, "plugins dial %s\n", cfg.Sidecar.Socket)
	}
	if at := side.Addr(); at != nil {
		fmt.Fprintf(stdout, "listening on %s\n", at)
	}
	if probes == "" {
		return parts, nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", probes)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w; another address can be given with --probes HOST:PORT", probes, err), side.Close())
	}
	metrics := observe.NewMetrics(observe.Sources{Entropy: lent, Sidecar: side}).Handler()
	return append(parts, part{"probes", func(ctx context.Context) error {
		return serveProbes(ctx, ln, metrics, func() bool { return true })
	}}), nil
}
