package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"runtime"

	"qr-gateway/backends/llama/bench"
)

// printer is a report that can be shown to a person.
type printer interface{ Print(io.Writer) error }

// runBench measures what args asks for: bench-decode or bench-workers, with the request as JSON.
func runBench(ctx context.Context, name string, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	request := flags.String("request", "", "bench.Config as JSON")
	asJSON := flags.Bool("json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	var cfg bench.Config
	if err := json.Unmarshal([]byte(*request), &cfg); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	runtime.GOMAXPROCS(1) // as an engine on a CPU does, see service.Deps
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	var report printer
	var err error
	if name == benchDecode {
		report, err = bench.Decode(ctx, cfg, log)
	} else {
		report, err = bench.Workers(ctx, cfg, log)
	}
	if err != nil {
		return err
	}
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(report)
	}
	return report.Print(stdout)
}

// Names of the measuring subcommands; qr-gateway bench starts them.
const (
	benchDecode  = "bench-decode"
	benchWorkers = "bench-workers"
)
