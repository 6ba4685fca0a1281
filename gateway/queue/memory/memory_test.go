package memory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/memory"
	"qr-gateway/gateway/queue/queuetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{Test: synctest.Test, Open: open, Advance: advance, Settle: synctest.Wait})
}

// open starts a queue with the suite's limits.
func open(t *testing.T, l queuetest.Limits) queue.Queue {
	return start(t, l.Config)
}

// start runs a queue until the test ends.
func start(t *testing.T, c memory.Config) *memory.Queue {
	q, err := memory.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := q.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { stop(); run.Wait() })
	return q
}

// advance moves the bubble's clock.
func advance(d time.Duration) {
	<-time.NewTimer(d).C
	synctest.Wait()
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := memory.New(memory.DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		calls.Go(func() { _ = q.Run(ctx) })
		submit(t, q, "runs")
		lease, err := q.Claim(t.Context(), queue.Offer{Node: "n", Models: []string{"m"}})
		if err != nil {
			t.Fatal(err)
		}
		submit(t, q, "waits")
		states, err := q.Watch(t.Context(), "waits")
		if err != nil {
			t.Fatal(err)
		}
		calls.Go(func() {
			if _, err := q.Claim(t.Context(), queue.Offer{Models: []string{"other"}}); !errors.Is(err, queue.ErrClosed) {
				t.Errorf("Claim = %v, want ErrClosed", err)
			}
		})
		synctest.Wait()
		stop()
		calls.Wait()
		<-lease.Lost
		var last queue.Status
		for s := range states {
			last = s
		}
		if last.State != queue.StateCancelled {
			t.Errorf("a waiting job ended as %s, want cancelled", last.State)
		}
		if _, err := q.Submit(t.Context(), queue.Job{ID: "late", Model: "m"}); !errors.Is(err, queue.ErrClosed) {
			t.Errorf("Submit = %v, want ErrClosed", err)
		}
	})
}

func submit(t *testing.T, q queue.Submitter, id string) {
	t.Helper()
	if _, err := q.Submit(t.Context(), queue.Job{ID: id, Key: "k", Model: "m", Cost: 1}); err != nil {
		t.Fatal(err)
	}
}

func TestForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memory.DefaultConfig()
		c.Keep, c.KeepJobs = time.Minute, 2
		q := start(t, c)
		for i := range 3 {
			id := fmt.Sprint(i)
			submit(t, q, id)
			if err := q.Cancel(t.Context(), id, "test"); err != nil {
				t.Fatal(err)
			}
		}
		known := func(id string) bool {
			_, err := q.Watch(t.Context(), id)
			return !errors.Is(err, queue.ErrUnknown)
		}
		advance(2 * time.Second)
		if known("0") || !known("1") || !known("2") {
			t.Errorf("known: %v %v %v, want the last two", known("0"), known("1"), known("2"))
		}
		advance(time.Minute)
		if known("1") || known("2") {
			t.Error("finished jobs are remembered for longer than Keep")
		}
	})
}

func TestConfig(t *testing.T) {
	if err := memory.DefaultConfig().Validate(); err != nil {
		t.Errorf("the default config: %v", err)
	}
	bad := memory.DefaultConfig()
	bad.Jobs, bad.Lease, bad.Attempts = 0, 0, 0
	if _, err := memory.New(bad); err == nil {
		t.Error("New took a config without jobs, lease and attempts")
	}
}

// BenchmarkThrough submits, claims and settles one job at a time, with others waiting.
func BenchmarkThrough(b *testing.B) {
	for _, depth := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprint("depth=", depth), func(b *testing.B) {
			c := memory.DefaultConfig()
			c.Jobs, c.JobsPerKey = depth+1, depth+1
			q, err := memory.New(c)
			if err != nil {
				b.Fatal(err)
			}
			for i := range depth {
				through(b, q, queue.Job{ID: fmt.Sprint("d", i), Key: fmt.Sprint("k", i%10), Model: "m", Cost: 1}, false)
			}
			payload := make([]byte, 1024)
			b.ResetTimer()
			for i := range b.N {
				through(b, q, queue.Job{ID: fmt.Sprint(i), Key: "k0", Model: "m", Cost: 1, Payload: payload}, true)
			}
		})
	}
}

func through(b *testing.B, q *memory.Queue, job queue.Job, run bool) {
	ctx := b.Context()
	_, err := q.Submit(ctx, job)
	var lease queue.Lease
	if run && err == nil {
		lease, err = q.Claim(ctx, queue.Offer{Node: "n", Models: []string{"m"}})
	}
	if run && err == nil {
		err = q.Settle(ctx, lease, queue.Outcome{State: queue.StateDone})
	}
	if err != nil {
		b.Fatal(err)
	}
}
