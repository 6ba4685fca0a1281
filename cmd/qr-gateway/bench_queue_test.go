package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
)

// benchQueue runs a small measurement.
func benchQueue(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := newBenchQueue()
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(append([]string{"--depths", "0,20", "--probes", "10", "--rounds", "1", "--round", "50ms", "--flood", "200", "--asks", "8", "--swaps", "60"}, args...))
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, &errs)
	}
	return out.Bytes()
}

// TestBenchQueue holds what does not depend on the machine: both queues are measured at each depth, a flood is not waited for, and there are
// fewer swaps than in the order of arrival.
func TestBenchQueue(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	var r queueReport
	if err := json.Unmarshal(benchQueue(t, "--json"), &r); err != nil {
		t.Fatal(err)
	}
	type at struct {
		queue string
		depth int
	}
	var rows []at
	for _, x := range r.FirstToken {
		rows = append(rows, at{x.Queue, x.Depth})
		if x.P50 <= 0 || x.P95 < x.P50 {
			t.Errorf("first token: %+v", x)
		}
	}
	if diff := cmp.Diff([]at{{"embedded", 0}, {"redis", 0}, {"embedded", 20}, {"redis", 20}}, rows, cmp.AllowUnexported(at{})); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if len(r.Throughput) != 2 || slices.ContainsFunc(r.Throughput, func(x throughputRow) bool { return x.Jobs <= 0 }) {
		t.Errorf("throughput: %+v", r.Throughput)
	}
	for _, x := range r.Fairness {
		if x.Idle <= 0 || x.Flooded <= 0 || x.Behind < 2*x.Flooded {
			t.Errorf("fairness: %+v", x)
		}
	}
	for _, x := range r.Collation {
		if x.Jobs != 60 || x.Swaps < 3 || x.Swaps >= x.FIFOSwaps || x.Longest <= 0 {
			t.Errorf("collation: %+v", x)
		}
	}
	if len(r.Fairness) != 2 || len(r.Collation) != 2 {
		t.Errorf("not both queues: %+v", r)
	}
}

// TestBenchQueueElsewhere holds that a server that belongs to others is left as it was, and that people can read the report.
func TestBenchQueueElsewhere(t *testing.T) {
	t.Parallel()
	s := miniredis.RunT(t)
	if err := s.Set("theirs", "1"); err != nil {
		t.Fatal(err)
	}
	text := string(benchQueue(t, "--redis", "redis://"+s.Addr()+"/0"))
	for _, want := range []string{"added to the first token", "through the queue", "beside a flood", "model swaps", "redis"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if keys := s.Keys(); !slices.Equal(keys, []string{"theirs"}) {
		t.Errorf("the measurement left %q", keys)
	}
}

func TestBenchQueueFlags(t *testing.T) {
	for _, args := range [][]string{{"--probes", "0"}, {"--depths", "-1"}, {"--flood", "1000000"}} {
		cmd := newBenchQueue()
		cmd.SetArgs(args)
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&bytes.Buffer{})
		if err := cmd.ExecuteContext(t.Context()); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
