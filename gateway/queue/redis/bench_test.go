package redis_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/redis"
)

// bench opens a queue with room on a server of its own.
func bench(b *testing.B) *redis.Queue {
	b.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		b.Skip("there is no redis-server")
	}
	socket := filepath.Join(b.TempDir(), "s")
	cmd := exec.Command(binary, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", filepath.Dir(socket))
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		<-time.NewTimer(time.Millisecond).C
	}
	c := redis.DefaultConfig()
	c.URL, c.Jobs, c.JobsPerKey, c.Tokens, c.TokensPerKey, c.Wait = "unix://"+socket, 20_000, 20_000, 1<<40, 1<<40, time.Hour
	q, err := redis.Open(b.Context(), c, quiet())
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = q.Run(ctx) })
	b.Cleanup(func() { stop(); run.Wait() })
	return q
}

// BenchmarkHandOver is the time from Submit until a node that waits has the job: what the server adds to the first token.
func BenchmarkHandOver(b *testing.B) {
	q := bench(b)
	took := make([]time.Duration, 0, b.N)
	leases := make(chan queue.Lease)
	ctx, stop := context.WithCancel(b.Context())
	var node sync.WaitGroup
	node.Go(func() {
		for {
			l, err := q.Claim(ctx, queue.Offer{Node: "n", Models: []string{"m"}})
			if err != nil {
				return
			}
			leases <- l
		}
	})
	for i := range b.N {
		for {
			if s, err := q.Stats(b.Context()); err == nil && s.Claims == 1 {
				break
			}
		}
		began := time.Now()
		if _, err := q.Submit(b.Context(), queue.Job{ID: fmt.Sprint(i), Key: "k", Model: "m", Cost: 1, Payload: make([]byte, 1024)}); err != nil {
			b.Fatal(err)
		}
		l := <-leases
		took = append(took, time.Since(began))
		if err := q.Settle(b.Context(), l, queue.Outcome{State: queue.StateDone}); err != nil {
			b.Fatal(err)
		}
	}
	stop()
	node.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs/p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs/p99")
}

// BenchmarkThrough submits, claims and settles jobs, with others waiting.
func BenchmarkThrough(b *testing.B) {
	for _, depth := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprint("depth=", depth), func(b *testing.B) {
			q := bench(b)
			for i := range depth {
				put(b, q, fmt.Sprint("d", i), fmt.Sprint("k", i%10))
			}
			busy := q.Busy(b.Context())
			b.ResetTimer()
			work := make(chan int)
			var workers sync.WaitGroup
			for range 8 {
				workers.Go(func() {
					for i := range work {
						through(b, q, i)
					}
				})
			}
			for i := range b.N {
				work <- i
			}
			close(work)
			workers.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			b.ReportMetric(1e6*(q.Busy(b.Context())-busy)/float64(b.N), "server-µs/job")
		})
	}
}

func put(b *testing.B, q *redis.Queue, id, key string) {
	b.Helper()
	if _, err := q.Submit(b.Context(), queue.Job{ID: id, Key: key, Model: "m", Cost: 10, Payload: make([]byte, 1024)}); err != nil {
		b.Error(err)
	}
}

func through(b *testing.B, q *redis.Queue, i int) {
	b.Helper()
	put(b, q, fmt.Sprint(i), fmt.Sprint("k", i%10))
	l, err := q.Claim(b.Context(), queue.Offer{Node: "n", Models: []string{"m"}})
	if err == nil {
		err = q.Heartbeat(b.Context(), l, queue.Progress{Seq: 1})
	}
	if err == nil {
		err = q.Settle(b.Context(), l, queue.Outcome{State: queue.StateDone, Cost: 10})
	}
	if err != nil {
		b.Error(err)
	}
}
