package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// queueBench measures the embedded queue beside the one on Redis, in one process and in interleaved rounds.
type queueBench struct {
	redis  string // address of a server; empty: one of its own, if the program is there
	json   bool
	depths []int
	probes int // per depth and queue
	rounds int // of throughput
	round  time.Duration
	flood  int // jobs of one key
	asks   int // requests of the other key
	swaps  int // jobs of several models
}

// queueReport is what it prints.
type queueReport struct {
	FirstToken []firstTokenRow `json:"first_token"`
	Throughput []throughputRow `json:"throughput"`
	Fairness   []fairnessRow   `json:"fairness"`
	Collation  []collationRow  `json:"collation"`
}

// firstTokenRow is the time that a queue adds to the first token, while Depth other jobs wait.
type firstTokenRow struct {
	Queue string  `json:"queue"`
	Depth int     `json:"depth"`
	P50   float64 `json:"p50_ms"`
	P95   float64 `json:"p95_ms"`
	More  float64 `json:"more_ms"` // than the embedded queue, at the median
}

// throughputRow is how many jobs a queue takes through all their states.
type throughputRow struct {
	Queue string  `json:"queue"`
	Jobs  float64 `json:"jobs_per_second"`
}

// fairnessRow is what one caller has of another's flood.
type fairnessRow struct {
	Queue   string  `json:"queue"`
	Idle    float64 `json:"idle_ms"`    // median time until an answer is there, with nobody else
	Flooded float64 `json:"flooded_ms"` // beside the flood
	Ratio   float64 `json:"ratio"`
	Behind  float64 `json:"behind_flood_ms"` // the wait of a request that stands behind the flood, as in one line for all
}

// collationRow is what it saves that jobs of a loaded model go first.
type collationRow struct {
	Queue       string  `json:"queue"`
	Jobs        int     `json:"jobs"`
	Swaps       int     `json:"swaps"`
	FIFOSwaps   int     `json:"fifo_swaps"`
	Longest     float64 `json:"longest_wait_ms"`
	FIFOLongest float64 `json:"fifo_longest_wait_ms"`
	Bound       float64 `json:"bound_ms"` // a job that has waited so long is overtaken no more
}

func newBenchQueue() *cobra.Command {
	b := &queueBench{}
	cmd := &cobra.Command{
		Use: "queue", Short: "compare the embedded queue with Redis: time to the first token, jobs a second, fairness, model swaps", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&b.redis, "redis", "", "`URL` of a Redis server (default: a redis-server of its own, if there is one on PATH)")
	fl.BoolVar(&b.json, "json", false, "print JSON")
	fl.IntSliceVar(&b.depths, "depths", []int{0, 1, 100, 10_000}, "jobs that wait while the first token is timed")
	fl.IntVar(&b.probes, "probes", 200, "first tokens to time at each depth")
	fl.IntVar(&b.rounds, "rounds", 3, "rounds of throughput")
	fl.DurationVar(&b.round, "round", time.Second, "length of a round")
	fl.IntVar(&b.flood, "flood", 1000, "jobs of the caller who floods the queue")
	fl.IntVar(&b.asks, "asks", 50, "requests of the other caller")
	fl.IntVar(&b.swaps, "swaps", 150, "jobs of three models on one worker")
	return cmd
}

func (b *queueBench) check() error {
	for _, n := range append([]int{b.probes, b.rounds, b.flood, b.asks, b.swaps, int(b.round)}, b.depths...) {
		if n < 0 || n > 100_000 && n != int(b.round) {
			return fmt.Errorf("check flags: a number is %d; they take 0 to 100000", n)
		}
	}
	if min(b.probes, b.rounds, b.flood, b.asks, b.swaps, int(b.round)) == 0 {
		return errors.New("check flags: only depths can be 0")
	}
	return nil
}

func (b *queueBench) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	if err := b.check(); err != nil {
		return err
	}
	at, err := newQueueServer(ctx, b.redis)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, at.close()) }()
	if at.url == "" {
		fmt.Fprintln(stderr, "no redis-server on PATH and no --redis URL: only the embedded queue is measured")
	}
	r := queueReport{}
	for _, part := range []func(context.Context, *queueServer, *queueReport) error{b.firstToken, b.throughput, b.fairness, b.collation} {
		if err := part(ctx, at, &r); err != nil {
			return err
		}
	}
	if b.json {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	return r.print(stdout)
}

func (r queueReport) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "added to the first token\tdepth\tmedian ms\tp95 ms\tmore than embedded, ms")
	for _, x := range r.FirstToken {
		fmt.Fprintf(w, "%s\t%d\t%.3f\t%.3f\t%.3f\n", x.Queue, x.Depth, x.P50, x.P95, x.More)
	}
	fmt.Fprintln(w, "\nthrough the queue\tjobs/s")
	for _, x := range r.Throughput {
		fmt.Fprintf(w, "%s\t%.0f\n", x.Queue, x.Jobs)
	}
	fmt.Fprintln(w, "\nbeside a flood of another key\tidle ms\tflooded ms\tratio\tbehind the flood, ms")
	for _, x := range r.Fairness {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.2f\t%.0f\n", x.Queue, x.Idle, x.Flooded, x.Ratio, x.Behind)
	}
	fmt.Fprintln(w, "\nmodel swaps\tjobs\tswaps\tFIFO\tlongest wait, ms\tFIFO\tbound, ms")
	for _, x := range r.Collation {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.0f\t%.0f\t%.0f\n", x.Queue, x.Jobs, x.Swaps, x.FIFOSwaps, x.Longest, x.FIFOLongest, x.Bound)
	}
	return w.Flush()
}
