package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// benchFlags become the engine's bench.Config. The measuring is done by qr-engine, the only program that links llama.cpp.
type benchFlags struct {
	engine string
	json   bool
}

func newBench() *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "measure decoding on a model, and the queue"}
	cmd.AddCommand(newBenchDecode(), newBenchWorkers(), newBenchPeers(), newBenchQueue())
	return cmd
}

func newBenchDecode() *cobra.Command {
	cmd := newMeasurement("decode", "compare plain, lazy, bounded, full and the classic method in one process, in interleaved rounds")
	cmd.Flags().Int("k", 20, "candidates")
	cmd.Flags().Float64("alpha", 0.3, "alpha")
	cmd.Flags().Float64("min-p", 0.05, "relative cut before looking ahead")
	cmd.Flags().Int("tokens", 256, "tokens per mode")
	cmd.Flags().Bool("classic", true, "measure the classic method too; its cache is k+1 times as large")
	cmd.Flags().StringSlice("only", nil, "modes to measure, by the names that the report has, e.g. `MODE,MODE`")
	cmd.Flags().Bool("canonical-cells", false, "put every token where it would be without looking ahead")
	cmd.Flags().Bool("seeded", true, "seeded requests, whose tokens are compared; else system entropy")
	return cmd
}

func newBenchWorkers() *cobra.Command {
	cmd := newMeasurement("workers", "compare the throughput of several busy workers with that of one, quiet and beside a busy process")
	cmd.Flags().Int("workers", 4, "workers")
	cmd.Flags().Int("tokens", 128, "tokens per worker")
	return cmd
}

// newMeasurement makes a command that the engine's bench-NAME carries out. Its flags but engine and json are the fields of the
// engine's bench.Config, with dashes.
func newMeasurement(name, short string) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use: name + " --model FILE", Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, "bench-"+name) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.engine, "engine", "", "the qr-engine `FILE` (default: beside this program)")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.String("model", "", "GGUF `FILE`")
	fl.Int("context", 128, "tokens of the prompt")
	fl.Int("rounds", 8, "interleaved rounds")
	fl.Int("group", 8, "candidates in one batch")
	fl.Int("threads", runtime.NumCPU(), "threads")
	fl.Int("poll", 0, "busy-wait level of the threads, 0 to 100")
	fl.Bool("flash-attention", false, "flash attention")
	_ = cmd.MarkFlagRequired("model")
	return cmd
}

// run hands the flags to the engine, which prints the report.
func (f *benchFlags) run(cmd *cobra.Command, subcommand string) error {
	req := map[string]any{}
	var errs []error
	cmd.LocalFlags().VisitAll(func(v *pflag.Flag) {
		if v.Name == "engine" || v.Name == "json" || v.Name == "help" {
			return
		}
		val, err := jsonValue(v.Value)
		errs = append(errs, err)
		req[strings.ReplaceAll(v.Name, "-", "_")] = val
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	return f.exec(cmd.Context(), cmd, subcommand, string(body))
}

func jsonValue(v pflag.Value) (any, error) {
	if list, ok := v.(pflag.SliceValue); ok {
		return list.GetSlice(), nil
	}
	if v.Type() == "string" {
		return v.String(), nil
	}
	if !json.Valid([]byte(v.String())) {
		return nil, fmt.Errorf("flag value %q is no %s", v.String(), v.Type())
	}
	return json.RawMessage(v.String()), nil
}

func (f *benchFlags) exec(ctx context.Context, cmd *cobra.Command, subcommand, request string) error {
	engine, err := engineBinary(f.engine)
	if err != nil {
		return err
	}
	args := []string{subcommand, "--request", request}
	if f.json {
		args = append(args, "--json")
	}
	child := exec.CommandContext(ctx, engine, args...)
	child.Cancel = func() error { return child.Process.Signal(os.Interrupt) }
	child.Stdout, child.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := child.Run(); err != nil {
		return fmt.Errorf("run %s: %w", subcommand, err)
	}
	return nil
}
