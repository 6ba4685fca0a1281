// Package queuetest is the suite that every implementation of the queue passes: order, turns, limits, leases, fencing,
// expiry, cancelling at each stage. An implementation calls [Run] from a test of its own with a [Harness].
package queuetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/gateway/queue"
)

// Limits are what the suite asks a queue to hold to.
type Limits struct {
	queue.Config
}

// Wide are limits that no case reaches unless it means to.
func Wide() Limits {
	c := queue.DefaultConfig()
	c.Jobs, c.JobsPerKey, c.Tokens, c.TokensPerKey = 1000, 1000, 1<<30, 1<<30
	c.Wait, c.Lease, c.Stall, c.Attempts = time.Minute, 6*time.Second, time.Minute, 2
	c.Age, c.AffinityAge, c.AffinitySlack = 30*time.Second, 2*time.Second, 1000
	return Limits{c}
}

// Harness is how the suite gets at an implementation.
type Harness struct {
	// Test runs f as a test; with a fake clock if the implementation can do with one.
	Test func(t *testing.T, f func(t *testing.T))
	// Open makes a running, empty queue that ends with the test.
	Open func(t *testing.T, l Limits) queue.Queue
	// Advance lets d go by.
	Advance func(d time.Duration)
	// Settle waits until what was done to the queue has reached those who watch it.
	Settle func()
	// Small has the long cases do a tenth, for a stand-in that is much slower than what it stands in for.
	Small bool
	// Every runs each so-many-th case only, where another harness runs them all on the same implementation; 0 is all.
	Every int
}

// Run runs every case.
func Run(t *testing.T, h Harness) {
	for i, c := range cases() {
		if h.Every > 0 && i%h.Every != 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			h.Test(t, func(t *testing.T) {
				limits := Wide()
				if c.limits != nil {
					c.limits(&limits)
				}
				c.run(&bench{T: t, h: h, q: h.Open(t, limits), limits: limits})
			})
		})
	}
}

type testCase struct {
	name   string
	limits func(l *Limits)
	run    func(b *bench)
}

func cases() []testCase {
	return slices.Concat(orderCases(), fairCases(), preferCases(), limitCases(), leaseCases(), endCases(), repeatCases(), logCases(), followCases())
}

// bench is a queue on the test bench.
type bench struct {
	*testing.T
	h      Harness
	q      queue.Queue
	limits Limits
}

// many is n, or a tenth of it where the suite is to be small.
func (b *bench) many(n int) int {
	if b.h.Small {
		return n / 10
	}
	return n
}

func job(id, key string) queue.Job {
	return queue.Job{ID: id, Key: key, Model: "m", Cost: 10, Payload: []byte("payload of " + id)}
}

func (b *bench) submit(id, key string) queue.Ticket {
	b.Helper()
	return b.submitJob(job(id, key))
}

func (b *bench) submitJob(j queue.Job) queue.Ticket {
	b.Helper()
	ticket, err := b.q.Submit(b.Context(), j)
	if err != nil {
		b.Fatalf("Submit(%s): %v", j.ID, err)
	}
	return ticket
}

// claim takes a job that must be there.
func (b *bench) claim(models ...string) queue.Lease {
	b.Helper()
	if len(models) == 0 {
		models = []string{"m"}
	}
	return b.claimWith(queue.Offer{Node: "node", Models: models})
}

func (b *bench) claimWith(offer queue.Offer) queue.Lease {
	b.Helper()
	ctx, stop := context.WithTimeout(b.Context(), time.Second)
	defer stop()
	lease, err := b.q.Claim(ctx, offer)
	if err != nil {
		b.Fatalf("Claim(%v): %v", offer.Models, err)
	}
	return lease
}

// claimLater blocks in a claim and returns what it gets.
func (b *bench) claimLater(models ...string) <-chan queue.Lease {
	return b.offerLater(queue.Offer{Node: "node", Models: models})
}

func (b *bench) offerLater(offer queue.Offer) <-chan queue.Lease {
	waiting := b.stats().Claims
	got := make(chan queue.Lease, 1)
	go func() {
		lease, err := b.q.Claim(b.Context(), offer)
		if err != nil {
			b.Errorf("Claim(%v): %v", offer.Models, err)
		}
		got <- lease
	}()
	b.untilClaims(waiting+1, func() bool { return len(got) > 0 })
	return got
}

// untilClaims waits until so many claims wait for a job, or there is no need to.
func (b *bench) untilClaims(n int, enough func() bool) {
	for b.stats().Claims < n && !enough() {
		<-time.NewTimer(time.Millisecond).C
	}
}

func (b *bench) stats() queue.Stats {
	b.Helper()
	s, err := b.q.Stats(b.Context())
	if err != nil {
		b.Fatalf("Stats: %v", err)
	}
	return s
}

// order claims n jobs and returns their ids.
func (b *bench) order(n int) []string {
	b.Helper()
	out := make([]string, n)
	for i := range out {
		out[i] = b.claim().Job.ID
	}
	return out
}

// none asserts that there is nothing to claim.
func (b *bench) none(models ...string) {
	b.Helper()
	ctx, stop := context.WithTimeout(b.Context(), 50*time.Millisecond)
	defer stop()
	lease, err := b.q.Claim(ctx, queue.Offer{Node: "node", Models: models})
	if !errors.Is(err, context.DeadlineExceeded) {
		b.Fatalf("Claim = job %q, %v; want none", lease.Job.ID, err)
	}
}

func (b *bench) settle(l queue.Lease, s queue.State, reason string) {
	b.Helper()
	if err := b.q.Settle(b.Context(), l, queue.Outcome{State: s, Cost: 7, Reason: reason}); err != nil {
		b.Fatalf("Settle(%s, %s): %v", l.Job.ID, s, err)
	}
}

func (b *bench) beat(l queue.Lease, seq int64) {
	b.Helper()
	if err := b.q.Heartbeat(b.Context(), l, queue.Progress{Seq: seq}); err != nil {
		b.Fatalf("Heartbeat(%s, %d): %v", l.Job.ID, seq, err)
	}
}

func (b *bench) cancel(id string) {
	b.Helper()
	if err := b.q.Cancel(b.Context(), id, "client left"); err != nil {
		b.Fatalf("Cancel(%s): %v", id, err)
	}
}

// fenced asserts that a lease is worth nothing.
func (b *bench) fenced(l queue.Lease) {
	b.Helper()
	if err := b.q.Heartbeat(b.Context(), l, queue.Progress{Seq: 99}); !errors.Is(err, queue.ErrFenced) {
		b.Errorf("Heartbeat with a stale lease of %s = %v, want ErrFenced", l.Job.ID, err)
	}
	for _, s := range []queue.State{queue.StateDone, queue.StateFailed, queue.StateQueued} {
		if err := b.q.Settle(b.Context(), l, queue.Outcome{State: s}); !errors.Is(err, queue.ErrFenced) {
			b.Errorf("Settle(%s) with a stale lease of %s = %v, want ErrFenced", s, l.Job.ID, err)
		}
	}
}

// lost says whether a lease has been taken back.
func (b *bench) lost(l queue.Lease) bool {
	b.h.Settle()
	select {
	case <-l.Lost:
		return true
	default:
		return false
	}
}

// watch reports what becomes of a job until the test ends.
func (b *bench) watch(id string) <-chan queue.Status {
	b.Helper()
	states, err := b.q.Watch(b.Context(), id)
	if err != nil {
		b.Fatalf("Watch(%s): %v", id, err)
	}
	return states
}

// state asserts where a job stands.
func (b *bench) state(id string, want queue.State) queue.Status {
	b.Helper()
	s := <-b.watch(id)
	if s.State != want {
		b.Fatalf("job %s is %s (%q), want %s", id, s.State, s.Reason, want)
	}
	return s
}

func (b *bench) same(what string, got, want any) {
	b.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func ids(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}
