package redis_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/node"
	"qr-gateway/gateway/queue/redis"
)

// timed notes how long the pieces of an answer are on the way.
type timed struct {
	asked time.Time
	first time.Duration
}

func (*timed) Queued(int, time.Duration) {}

func (s *timed) Event(e backends.Event) error {
	if e.Content != "" && s.first == 0 {
		s.first = time.Since(s.asked)
	}
	return nil
}

// way is a dispatcher and a node, with a model each of their own, on one queue.
func way(b *testing.B, q *redis.Queue, id string, carry bool) (*dispatch.Dispatcher, *fake.Model) {
	b.Helper()
	c := fake.DefaultConfig()
	c.Model = id
	m, err := fake.New(c, fake.Deps{})
	if err != nil {
		b.Fatal(err)
	}
	own := dispatch.DefaultConfig()
	own.Carry = carry
	d, err := dispatch.New(own, dispatch.Deps{Queue: q, Log: q})
	if err != nil {
		b.Fatal(err)
	}
	frames := node.Here(d)
	if carry {
		frames = func(string) node.FrameSink { return nil }
	}
	deps := node.Deps{Queue: q, Logs: q, Frames: frames, Log: slog.New(slog.DiscardHandler)}
	n, err := node.New(node.DefaultConfig(), []node.Model{{ID: id, Backend: m, Workers: 1}}, deps)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = n.Run(ctx) })
	b.Cleanup(func() { stop(); run.Wait() })
	return d, m
}

// BenchmarkFirstText is the time to the first text of an answer that comes straight, and of one that comes through the log, in turns.
func BenchmarkFirstText(b *testing.B) {
	q := bench(b)
	straight, one := way(b, q, "straight", false)
	logged, two := way(b, q, "logged", true)
	took := map[string][]time.Duration{}
	ask := func(d *dispatch.Dispatcher, m *fake.Model, n int) {
		text, id := "once", m.Info().Model
		p, err := m.Prepare(b.Context(), &backends.Request{ID: id, Model: id, Text: &text, MaxTokens: 8})
		if err != nil {
			b.Fatal(err)
		}
		s := &timed{asked: time.Now()}
		if _, err := d.Do(b.Context(), dispatch.Job{ID: fmt.Sprint(id, n), Key: "k", Model: id, Prepared: p}, s); err != nil {
			b.Fatal(err)
		}
		took[id] = append(took[id], s.first)
	}
	n := 0
	for b.Loop() {
		n++
		ask(straight, one, n)
		ask(logged, two, n)
	}
	median := func(id string) float64 {
		slices.Sort(took[id])
		return took[id][len(took[id])/2].Seconds() * 1e3
	}
	b.ReportMetric(median("straight"), "straight-ms")
	b.ReportMetric(median("logged"), "logged-ms")
	b.ReportMetric(median("logged")/median("straight"), "ratio")
}
