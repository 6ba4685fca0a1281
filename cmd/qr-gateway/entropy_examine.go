package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"qr-gateway/entropy/catalog"
	"qr-gateway/entropy/chart"
	"qr-gateway/entropy/guard"
	"qr-gateway/entropy/measure"
	"qr-gateway/gateway/config"
)

// examination is one `entropy test`.
type examination struct {
	config  string
	plot    string
	json    bool
	save    string
	measure measure.Config
}

// errFailed is a source that a test fails.
var errFailed = errors.New("a test fails; see the report")

func newEntropyTest() *cobra.Command {
	x := examination{measure: measure.DefaultConfig()}
	cmd := &cobra.Command{
		Use:   "test SOURCE",
		Short: "examine a source: rate, latency, health tests, and whether its bytes and numbers are distributed as they should be",
		Long: "test draws blocks from SOURCE, which is TYPE[,key=value...], or with --config the name of a source there, and prints what it finds.\n" +
			"The status is 1 when a test fails. 'look again' is what 1 perfect source in 100 shows: measure once more, don't choose the\n" +
			"better of two. See docs/entropy.md for what the tests can and can't see.",
		Example: "  qr-gateway entropy test system\n" +
			"  qr-gateway entropy test grpc,address=unix:///run/qr-entropy/entropy.sock,mode=bidi_streaming --plot source.png\n" +
			"  qr-gateway entropy test lab --config qr-gateway.yaml --json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return x.run(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&x.config, "config", "", "YAML `FILE`: SOURCE is the name of a source in it")
	f.IntVar(&x.measure.Blocks, "draws", x.measure.Blocks, "blocks to draw; a number is made of each")
	f.IntVar(&x.measure.BlockBytes, "bytes", x.measure.BlockBytes, "bytes of one block")
	f.StringVar(&x.plot, "plot", "", "PNG `FILE` to draw what was found in")
	f.StringVar(&x.save, "save-baseline", "", "new `FILE` for the source's baseline, to be named by its option calibration_file")
	f.BoolVar(&x.json, "json", false, "print the report as JSON, with every series")
	return cmd
}

func (x *examination) run(ctx context.Context, source string, stdout io.Writer) error {
	if err := x.measure.Validate(); err != nil {
		return fmt.Errorf("check flags: %w", err)
	}
	if err := x.canSave(); err != nil {
		return err
	}
	spec, others, err := x.specs(source)
	if err != nil {
		return err
	}
	spec.Policy, spec.Fallback = string(guard.Observe), "" // what the guard would act on is what is looked for here
	set, err := catalog.Open(ctx, append(others, spec), catalog.Deps{})
	if err != nil {
		return err
	}
	report, err := x.examine(ctx, set, spec.Name)
	if err := errors.Join(err, set.Close()); err != nil {
		return err
	}
	if err := x.saveBaseline(spec.Name, report); err != nil {
		return err
	}
	return x.show(report, stdout)
}

// canSave says why a baseline could not be saved, before anything is drawn: that may take hours.
func (x *examination) canSave() error {
	if x.save == "" {
		return nil
	}
	if x.measure.Blocks < guard.MinBlocks {
		return fmt.Errorf("save baseline: %d draws say too little: make it --draws %d or more", x.measure.Blocks, guard.MinBlocks)
	}
	if _, err := os.Lstat(x.save); err == nil {
		return fmt.Errorf("save baseline: %w: %s; a baseline is never replaced, name a new file", fs.ErrExist, x.save)
	}
	return nil
}

// saveBaseline freezes what was drawn as the source's baseline.
func (x *examination) saveBaseline(name string, r *measure.Report) error {
	if x.save == "" {
		return nil
	}
	c, err := guard.NewCalibration(name, r.Device, r.When, r.BlockBytes, r.Series.Sums)
	if err != nil {
		return err
	}
	if err := c.Stable(); err != nil {
		return fmt.Errorf("save baseline: %w: let the device warm up and measure again", err)
	}
	return c.Save(x.save)
}

// specs are the source and those it is made of.
func (x *examination) specs(source string) (catalog.Spec, []catalog.Spec, error) {
	if x.config == "" {
		spec, err := parseSource(source)
		return spec, nil, err
	}
	cfg, err := config.Load(config.Options{File: x.config, Env: os.Environ(), Backends: backendNames()})
	if err != nil {
		return catalog.Spec{}, nil, err
	}
	var found *catalog.Spec
	var others []catalog.Spec
	for _, s := range cfg.Entropy.Sources {
		if spec := s.Spec(); s.Name == source {
			found = &spec
		} else {
			others = append(others, spec)
		}
	}
	if found == nil {
		return catalog.Spec{}, nil, fmt.Errorf("%s has no entropy source %q; it has %v", x.config, source, cfg.SourceNames())
	}
	if found.Type != "fallback" {
		others = nil // a device that another source owns stays with it
	}
	return *found, others, nil
}

func (x *examination) examine(ctx context.Context, set *catalog.Set, name string) (*measure.Report, error) {
	g, err := set.Guard(name)
	if err != nil {
		return nil, err
	}
	x.measure.Health = g.Health()
	if c := g.Calibration(); c != nil {
		x.measure.Mean, x.measure.Std = c.Mean, c.Std
	}
	return measure.Run(ctx, g, x.measure)
}

func (x *examination) show(r *measure.Report, stdout io.Writer) error {
	if x.plot != "" {
		if err := x.draw(r); err != nil {
			return err
		}
	}
	write := r.Text
	if x.json {
		write = func(w io.Writer) error { return json.NewEncoder(w).Encode(r) }
	}
	if err := write(stdout); err != nil {
		return err
	}
	if r.Failed() {
		return errFailed
	}
	return nil
}

func (x *examination) draw(r *measure.Report) error {
	f, err := os.Create(x.plot)
	if err != nil {
		return fmt.Errorf("make plot: %w", err)
	}
	return errors.Join(chart.PNG(f, r), f.Close())
}
