package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
)

// peers compares plain decoding with llama-bench, in interleaved rounds.
type peers struct {
	bench, model, engine string
	threads, rounds      int
	tokens               int
}

func newBenchPeers() *cobra.Command {
	p := &peers{}
	cmd := &cobra.Command{
		Use:   "peers --llama-bench FILE --model FILE",
		Short: "compare plain decoding with llama-bench built from the same tree, in interleaved rounds",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	fl := cmd.Flags()
	fl.StringVar(&p.bench, "llama-bench", "", "llama-bench `FILE`; make -s llama-bench-bin prints it")
	fl.StringVar(&p.model, "model", "", "GGUF `FILE`")
	fl.StringVar(&p.engine, "engine", "", "the qr-engine `FILE` (default: beside this program)")
	fl.IntVar(&p.threads, "threads", 2, "threads of both")
	fl.IntVar(&p.rounds, "rounds", 6, "rounds")
	fl.IntVar(&p.tokens, "tokens", 128, "tokens per round")
	for _, name := range []string{"llama-bench", "model"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}

func (p *peers) run(ctx context.Context, w io.Writer) error {
	engine, err := engineBinary(p.engine)
	if err != nil {
		return err
	}
	var ratios []float64
	for round := range p.rounds {
		theirs, err := p.llamaBench(ctx)
		if err != nil {
			return err
		}
		ours, err := p.ours(ctx, engine)
		if err != nil {
			return err
		}
		ratios = append(ratios, ours/theirs)
		fmt.Fprintf(w, "round %d: llama-bench %.1f tokens/s, qr-engine plain %.1f tokens/s, ratio %.3f\n", round+1, theirs, ours, ours/theirs)
	}
	slices.Sort(ratios)
	_, err = fmt.Fprintf(w, "plain / llama-bench, median of %d rounds: %.3f\n", len(ratios), ratios[len(ratios)/2])
	return err
}

// llamaBench is the peer's tokens per second.
func (p *peers) llamaBench(ctx context.Context) (float64, error) {
	out, err := output(ctx, p.bench, "-m", p.model, "-p", "0", "-n", strconv.Itoa(p.tokens), "-d", "64", "-r", "1",
		"-t", strconv.Itoa(p.threads), "--poll", "0", "-fa", "0", "-o", "json")
	if err != nil {
		return 0, err
	}
	var rows []struct {
		AvgTS float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(out, &rows); err != nil || len(rows) == 0 {
		return 0, fmt.Errorf("read llama-bench's answer %q: %w", out, err)
	}
	return rows[len(rows)-1].AvgTS, nil
}

// ours is the tokens per second of a worker that samples from the whole distribution.
func (p *peers) ours(ctx context.Context, engine string) (float64, error) {
	req, err := json.Marshal(map[string]any{
		"model": p.model, "k": 20, "tokens": p.tokens, "rounds": 1, "context": 64, "group": 8, "threads": p.threads, "only": []string{"plain"},
	})
	if err != nil {
		return 0, fmt.Errorf("encode request: %w", err)
	}
	out, err := output(ctx, engine, "bench-decode", "--json", "--request", string(req))
	if err != nil {
		return 0, err
	}
	var report struct {
		Modes []struct {
			MS float64 `json:"ms_per_token"`
		}
	}
	if err := json.Unmarshal(out, &report); err != nil || len(report.Modes) == 0 || report.Modes[0].MS <= 0 {
		return 0, fmt.Errorf("read the engine's answer %q: %w", out, err)
	}
	return 1000 / report.Modes[0].MS, nil
}

func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w: %s", name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
