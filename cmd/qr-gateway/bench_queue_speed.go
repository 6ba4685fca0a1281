package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
)

// Sizes of the jobs that queues are filled with.
const (
	fillKeys    = 10
	fillCost    = 1000
	fillPayload = 2048
	parallel    = 8
)

// firstToken times the way from a request that is ready to its first token at the client, with a worker that answers at once and takes the
// request as soon as it is in the queue. So it is what the queue and the dispatcher add, without any wait for a worker.
func (b *queueBench) firstToken(ctx context.Context, at *queueServer, r *queueReport) error {
	for _, depth := range b.depths {
		if err := at.with(ctx, nil, func(ctx context.Context, beds []bed) error { return b.atDepth(ctx, beds, depth, r) }); err != nil {
			return fmt.Errorf("time the first token at depth %d: %w", depth, err)
		}
	}
	return nil
}

func (b *queueBench) atDepth(ctx context.Context, beds []bed, depth int, r *queueReport) error {
	took := make([][]time.Duration, len(beds))
	clients := make([]*prober, len(beds))
	for i, q := range beds {
		if err := fill(ctx, q, depth); err != nil {
			return err
		}
		var err error
		if clients[i], err = newProber(q, depth == 0); err != nil {
			return err
		}
	}
	for n := range b.probes + b.probes/10 {
		for i, c := range clients {
			d, err := c.ask(ctx, n)
			if err != nil {
				return fmt.Errorf("%s: %w", beds[i].name, err)
			}
			if n >= b.probes/10 { // those before have warmed it up
				took[i] = append(took[i], d)
			}
		}
	}
	for i, q := range beds {
		r.FirstToken = append(r.FirstToken, firstTokenRow{
			Queue: q.name, Depth: depth, P50: quantile(took[i], .5), P95: quantile(took[i], .95), More: quantile(took[i], .5) - quantile(took[0], .5),
		})
	}
	return nil
}

// fill leaves depth jobs waiting, of keys that have had a turn: a new key goes before them.
func fill(ctx context.Context, q queue.Queue, depth int) error {
	keys := min(depth, fillKeys)
	if keys == 0 {
		return nil
	}
	err := each(depth+keys, func(i int) error {
		_, err := q.Submit(ctx, queue.Job{
			ID: fmt.Sprint("fill-", i), Key: fmt.Sprint("fill-", i%keys), Model: "m", Cost: fillCost, Payload: make([]byte, fillPayload),
		})
		return err
	})
	for range keys {
		if err == nil {
			err = through(ctx, q)
		}
	}
	return err
}

// each calls f with 0 to n-1, some at a time, and returns the first errors.
func each(n int, f func(i int) error) error {
	var next atomic.Int64
	errs := make([]error, parallel)
	var all sync.WaitGroup
	for p := range parallel {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[p] == nil; i = int(next.Add(1)) - 1 {
				errs[p] = f(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// through runs the next job, whose client gets one token.
func through(ctx context.Context, q queue.Queue) error {
	l, err := q.Claim(ctx, queue.Offer{Node: "n", Models: []string{"m"}})
	if err != nil {
		return err
	}
	if err := q.Heartbeat(ctx, l, queue.Progress{Seq: 1}); err != nil {
		return err
	}
	return q.Settle(ctx, l, queue.Outcome{State: queue.StateDone, Cost: l.Job.Cost})
}

// prober is a client with the worker that answers it.
type prober struct {
	q       bed
	hub     *dispatch.Dispatcher
	waiting bool // the worker waits for the request, else it comes when the request is queued
}

func newProber(q bed, waiting bool) (*prober, error) {
	hub, err := dispatch.New(dispatch.DefaultConfig(), dispatch.Deps{Queue: q})
	return &prober{q, hub, waiting}, err
}

// probe implements dispatch.Sink.
type probe struct {
	queued chan struct{}
	once   sync.Once
	first  time.Time
}

func (p *probe) Queued(int, time.Duration) { p.once.Do(func() { close(p.queued) }) }

func (p *probe) Event(backends.Event) error {
	p.first = time.Now()
	return nil
}

// ask sends one request and returns how long its first token took.
func (c *prober) ask(ctx context.Context, n int) (time.Duration, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	id := fmt.Sprint("probe-", n)
	p := &probe{queued: make(chan struct{})}
	worked := make(chan error, 1)
	go func() { worked <- c.work(ctx, id, p.queued, stop) }()
	if c.waiting {
		if err := c.awaited(ctx); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	_, err := c.hub.Do(ctx, dispatch.Job{ID: id, Key: id, Model: "m", Prepared: &backends.Prepared{
		Request: &backends.Request{ID: id, Model: "m"}, Tokens: make([]int32, 200), MaxTokens: 50,
	}}, p)
	if err != nil {
		stop()
	}
	return p.first.Sub(began), errors.Join(err, <-worked)
}

// awaited returns when the worker waits in the queue.
func (c *prober) awaited(ctx context.Context) error {
	for {
		s, err := c.q.Stats(ctx)
		if err != nil || s.Claims > 0 {
			return err
		}
		if err := rest(ctx, 200*time.Microsecond); err != nil {
			return err
		}
	}
}

// work runs the request as a node does. giveUp ends the client's wait when that fails.
func (c *prober) work(ctx context.Context, id string, queued <-chan struct{}, giveUp func()) (err error) {
	defer func() {
		if err != nil {
			giveUp()
		}
	}()
	if !c.waiting {
		select {
		case <-queued:
		case <-ctx.Done():
			return nil
		}
	}
	l, err := c.q.Claim(ctx, queue.Offer{Node: "n", Models: []string{"m"}})
	if err != nil {
		return err
	}
	if l.Job.ID != id {
		return fmt.Errorf("the queue gave out %s before %s", l.Job.ID, id)
	}
	if err := c.q.Heartbeat(ctx, l, queue.Progress{Seq: 1}); err != nil {
		return err
	}
	for seq, f := range []dispatch.Frame{{Event: backends.Event{Content: "x"}}, {Result: &backends.Result{Reason: backends.ReasonStop}}} {
		f.Job, f.Epoch, f.Seq = id, l.Epoch, int64(seq+1)
		if err := c.hub.Deliver(ctx, f); err != nil {
			return err
		}
	}
	return c.q.Settle(context.WithoutCancel(ctx), l, queue.Outcome{State: queue.StateDone, Cost: l.Job.Cost})
}

// throughput takes jobs through all their states, some at a time.
func (b *queueBench) throughput(ctx context.Context, at *queueServer, r *queueReport) error {
	return at.with(ctx, nil, func(ctx context.Context, beds []bed) error {
		rates := make([][]float64, len(beds))
		for round := range b.rounds {
			for i, q := range beds {
				n, took, err := b.rush(ctx, q, round)
				if err != nil {
					return fmt.Errorf("measure throughput of the %s queue: %w", q.name, err)
				}
				rates[i] = append(rates[i], float64(n)/took.Seconds())
			}
		}
		for i, q := range beds {
			slices.Sort(rates[i])
			r.Throughput = append(r.Throughput, throughputRow{q.name, rates[i][len(rates[i])/2]})
		}
		return nil
	})
}

func (b *queueBench) rush(ctx context.Context, q queue.Queue, round int) (jobs int64, took time.Duration, err error) {
	var done atomic.Int64
	began := time.Now()
	err = each(parallel, func(p int) error {
		for i := 0; time.Since(began) < b.round; i++ {
			id := fmt.Sprintf("%d-%d-%d", round, p, i)
			job := queue.Job{ID: id, Key: fmt.Sprint(i % fillKeys), Model: "m", Cost: fillCost, Payload: make([]byte, fillPayload)}
			if _, err := q.Submit(ctx, job); err != nil {
				return err
			}
			if err := through(ctx, q); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
	return done.Load(), time.Since(began), err
}

// quantile is one of some times, in milliseconds.
func quantile(all []time.Duration, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return float64(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]) / float64(time.Millisecond)
}
