package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"qr-gateway/gateway/config"
	"qr-gateway/sampler"
	"qr-gateway/sampler/param"
)

func newValidate() *cobra.Command {
	var effective bool
	cmd := withConfig("validate", "check a configuration and say what is wrong with it", func(cmd *cobra.Command, cfg config.Config) error {
		out := cmd.OutOrStdout()
		for _, w := range cfg.Warnings {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
		}
		for _, m := range cfg.Models {
			fmt.Fprintf(out, "model %s: %s\n", strings.Join(append([]string{m.ID}, m.Aliases...), ", "), summary(m))
		}
		if effective {
			if err := showEffective(out, cfg); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintln(out, "configuration is valid")
		return err
	})
	cmd.Flags().BoolVar(&effective, "show", false, "print what is in effect, and where each value comes from")
	return cmd
}

// summary says what serves a model.
func summary(m config.Model) string {
	var all []string
	for _, b := range m.Backends() {
		text := b.Model.Backend + " " + b.Model.Path
		if len(m.Replicas) > 0 {
			text = fmt.Sprintf("%s (%s, workers %d, weight %g)", b.Name, strings.TrimSpace(text), b.Model.Workers, b.Weight)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// showEffective prints the sources, the presets, the process's own fields and every model's parameters, each with its origin.
func showEffective(w io.Writer, cfg config.Config) error {
	errs := []error{
		show(w, "\nentropy sources: %s; default %s\n", strings.Join(cfg.SourceNames(), ", "), cfg.Entropy.Default),
		show(w, "presets: %s\n", strings.Join(cfg.Library.Names(), ", ")),
		show(w, "\nprocess\n"),
	}
	for _, f := range sampler.ProcessFields() {
		value, _ := cfg.Process.Value(f.Key)
		errs = append(errs, showField(w, f, value, cfg.Origins[f.Key]))
	}
	for _, m := range cfg.Models {
		errs = append(errs, show(w, "\nmodel %s\n", m.ID))
		for _, f := range sampler.Fields() {
			value, _ := m.Params.Value(f.Key)
			errs = append(errs, showField(w, f, value, m.Origins[f.Key]))
		}
	}
	return errors.Join(append(errs, show(w, "\n"))...)
}

func showField(w io.Writer, f sampler.Field, value any, origin string) error {
	if origin == "" {
		origin = "default"
	}
	text := fmt.Sprint(value)
	switch {
	case f.Secret && value != f.Default:
		text = "(set)"
	case value == nil:
		text = "unset"
	case value == "":
		text = `""`
	case f.Type == sampler.TypeObject:
		text = param.Show(value)
	}
	return show(w, "  %-32s %-28s %s\n", f.Key, text, origin)
}

func show(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(w, format, args...)
	return err
}
