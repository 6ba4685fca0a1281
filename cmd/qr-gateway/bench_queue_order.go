package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"qr-gateway/gateway/queue"
)

// What the workers of these measurements take for a job, in place of decoding.
const (
	floodWorkers = 4
	floodService = 5 * time.Millisecond
	thinkTime    = 10 * time.Millisecond // of the caller who doesn't flood, more or less: in step with the workers it would never wait
	swapService  = 2 * time.Millisecond
	swapTime     = 10 * time.Millisecond // to load another model
	swapArrivals = 4 * time.Millisecond
	swapBound    = 200 * time.Millisecond
)

// visit is one job as its caller sees it.
type visit struct{ claimed, done chan struct{} }

// pool is workers that take a fixed time for each job.
type pool struct {
	q      queue.Queue
	mu     sync.Mutex // guards visits
	visits map[string]*visit
}

// ask sends a job and returns its wait for a worker and the time until it was done.
func (p *pool) ask(ctx context.Context, id, key string) (wait, total time.Duration, err error) {
	v := &visit{make(chan struct{}), make(chan struct{})}
	p.mu.Lock()
	p.visits[id] = v
	p.mu.Unlock()
	began := time.Now()
	if _, err := p.q.Submit(ctx, floodJob(id, key)); err != nil {
		return 0, 0, err
	}
	for _, c := range []chan struct{}{v.claimed, v.done} {
		select {
		case <-c:
		case <-ctx.Done():
			return 0, 0, context.Cause(ctx)
		}
		if c == v.claimed {
			wait = time.Since(began)
		}
	}
	return wait, time.Since(began), nil
}

func floodJob(id, key string) queue.Job {
	return queue.Job{ID: id, Key: key, Model: "m", Cost: fillCost, Payload: make([]byte, fillPayload)}
}

// work is one worker.
func (p *pool) work(ctx context.Context) error {
	for {
		l, err := p.q.Claim(ctx, queue.Offer{Node: "n", Models: []string{"m"}})
		if err != nil {
			return err
		}
		p.mu.Lock()
		v := p.visits[l.Job.ID]
		p.mu.Unlock()
		if v != nil {
			close(v.claimed)
		}
		if err := rest(ctx, floodService); err != nil {
			return err
		}
		if err := p.q.Settle(ctx, l, queue.Outcome{State: queue.StateDone, Cost: l.Job.Cost}); err != nil {
			return err
		}
		if v != nil {
			close(v.done)
		}
	}
}

// errMeasured ends the workers of a measurement.
var errMeasured = errors.New("the measurement is over")

// staffed runs f while workers run.
func (p *pool) staffed(ctx context.Context, workers int, f func(ctx context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	errs := make([]error, workers)
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			if errs[i] = p.work(ctx); context.Cause(ctx) == nil {
				stop(errs[i])
			}
		})
	}
	err := f(ctx)
	stop(errMeasured)
	all.Wait()
	for _, e := range errs {
		if !errors.Is(e, errMeasured) && !errors.Is(e, context.Canceled) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// fairness lets one caller ask now and then, alone and beside another who has sent a flood.
func (b *queueBench) fairness(ctx context.Context, at *queueServer, r *queueReport) error {
	return at.with(ctx, nil, func(ctx context.Context, beds []bed) error {
		for _, q := range beds {
			row, err := b.besideFlood(ctx, q)
			if err != nil {
				return fmt.Errorf("measure fairness of the %s queue: %w", q.name, err)
			}
			r.Fairness = append(r.Fairness, row)
		}
		return nil
	})
}

func (b *queueBench) besideFlood(ctx context.Context, q bed) (row fairnessRow, err error) {
	p := &pool{q: q, visits: map[string]*visit{}}
	row.Queue = q.name
	err = p.staffed(ctx, floodWorkers, func(ctx context.Context) error {
		idle, err := b.askAround(ctx, p, "idle")
		if err != nil {
			return err
		}
		if err := each(b.flood, func(i int) error {
			_, err := q.Submit(ctx, floodJob(fmt.Sprint("flood-", i), "flood"))
			return err
		}); err != nil {
			return err
		}
		behind := make(chan error, 1)
		go func() {
			wait, _, err := p.ask(ctx, "behind", "flood")
			row.Behind = quantile([]time.Duration{wait}, 0)
			behind <- err
		}()
		flooded, err := b.askAround(ctx, p, "flooded")
		row.Idle, row.Flooded = quantile(idle, .5), quantile(flooded, .5)
		row.Ratio = row.Flooded / row.Idle
		return errors.Join(err, <-behind)
	})
	return row, err
}

// askAround is the caller's requests, one after the other: how long each took. It ends early when the flood has.
func (b *queueBench) askAround(ctx context.Context, p *pool, name string) (took []time.Duration, err error) {
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same each time
	for i := range b.asks {
		select {
		case <-p.ended("behind"):
			return took, nil
		default:
		}
		_, total, err := p.ask(ctx, fmt.Sprint(name, "-", i), "other")
		if err != nil {
			return nil, err
		}
		took = append(took, total)
		if err := rest(ctx, thinkTime/2+time.Duration(random.Int64N(int64(thinkTime)))); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// ended is closed when the job has left for a worker; nil, which never is, for one that was not sent.
func (p *pool) ended(id string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.visits[id]; v != nil {
		return v.claimed
	}
	return nil
}

// collation has one worker that must load another model whenever the job at hand is of one, with and without telling the queue what is
// loaded; without, jobs are served in the order they come.
func (b *queueBench) collation(ctx context.Context, at *queueServer, r *queueReport) error {
	change := func(c *queue.Config) { c.AffinityAge = swapBound }
	return at.with(ctx, change, func(ctx context.Context, beds []bed) error {
		for _, q := range beds {
			fifo, err := b.swapRun(ctx, q, "fifo", false)
			if err != nil {
				return fmt.Errorf("measure model swaps of the %s queue: %w", q.name, err)
			}
			near, err := b.swapRun(ctx, q, "near", true)
			if err != nil {
				return fmt.Errorf("measure model swaps of the %s queue: %w", q.name, err)
			}
			r.Collation = append(r.Collation, collationRow{
				Queue: q.name, Jobs: b.swaps, Swaps: near.swaps, FIFOSwaps: fifo.swaps,
				Longest: quantile(near.waits, 1), FIFOLongest: quantile(fifo.waits, 1), Bound: quantile([]time.Duration{swapBound}, 0),
			})
		}
		return nil
	})
}

// swapRun is what came of one run.
type swapRun struct {
	swaps int
	waits []time.Duration
}

// swapRun sends the same jobs at the same times each time, all of one key, so that nothing but the models changes their order.
func (b *queueBench) swapRun(ctx context.Context, q queue.Queue, name string, tell bool) (swapRun, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	models := []string{name + "-a", name + "-b", name + "-c"}
	var mu sync.Mutex // guards sent
	sent := map[string]time.Time{}
	arrived := make(chan error, 1)
	go func() {
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
		for i := range b.swaps {
			id := fmt.Sprint(name, "-", i)
			mu.Lock()
			sent[id] = time.Now()
			mu.Unlock()
			_, err := q.Submit(ctx, queue.Job{ID: id, Key: "one", Model: models[random.IntN(len(models))], Cost: fillCost})
			if err = errors.Join(err, rest(ctx, swapArrivals)); err != nil {
				stop()
				arrived <- err
				return
			}
		}
		arrived <- nil
	}()
	run, err := b.swapWorker(ctx, q, models, tell, func(id string) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Since(sent[id])
	})
	if err != nil {
		stop()
	}
	return run, errors.Join(err, <-arrived)
}

// swapWorker runs all jobs of a run.
func (b *queueBench) swapWorker(ctx context.Context, q queue.Queue, models []string, tell bool, waited func(id string) time.Duration) (run swapRun, err error) {
	offer := queue.Offer{Node: "n", Models: models}
	loaded := ""
	for range b.swaps {
		l, err := q.Claim(ctx, offer)
		if err != nil {
			return run, err
		}
		run.waits = append(run.waits, waited(l.Job.ID))
		if l.Job.Model != loaded {
			loaded = l.Job.Model
			run.swaps++
			err = rest(ctx, swapTime)
			if tell {
				offer.Loaded = []string{loaded}
			}
		}
		err = errors.Join(err, rest(ctx, swapService), q.Settle(ctx, l, queue.Outcome{State: queue.StateDone, Cost: l.Job.Cost}))
		if err != nil {
			return run, err
		}
	}
	slices.Sort(run.waits)
	return run, nil
}
