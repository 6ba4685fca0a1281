package worker

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"qr-gateway/backends"
)

// affinity is how many tokens a worker must save before it is preferred to one that has been idle for longer.
const affinity = 32

// Pool leases each request to one of its workers. Requests that find all of them busy wait in the order they came.
type Pool struct {
	workers []*Worker
	mu      sync.Mutex // guards idle and queue
	idle    []*Worker  // longest idle first
	queue   []chan *Worker
}

// NewPool makes a pool of workers, all idle.
func NewPool(workers []*Worker) *Pool {
	return &Pool{workers: workers, idle: slices.Clone(workers)}
}

// Run runs the workers until ctx ends.
func (p *Pool) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, w := range p.workers {
		g.Go(func() error { return w.Run(ctx) })
	}
	return g.Wait()
}

// Do runs a job on a worker; see Worker.Do.
func (p *Pool) Do(ctx context.Context, job *Job, emit func(backends.Event) error) (*backends.Result, error) {
	w, err := p.lease(ctx, job)
	if err != nil {
		return nil, err
	}
	defer p.release(w)
	return w.Do(ctx, job, emit)
}

// lease waits for a worker.
func (p *Pool) lease(ctx context.Context, job *Job) (*Worker, error) {
	w, grant := p.take(job)
	if w != nil {
		return w, nil
	}
	select {
	case w := <-grant:
		return w, nil
	case <-ctx.Done():
		p.abandon(grant)
		return nil, ctx.Err()
	}
}

// take leases the idle worker that holds most of the job's prompt, or queues for one.
func (p *Pool) take(job *Job) (*Worker, chan *Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		grant := make(chan *Worker, 1) // a grant never waits for its receiver
		p.queue = append(p.queue, grant)
		return nil, grant
	}
	best, most := 0, affinity-1
	for i, w := range p.idle {
		if n := w.policy.reuse(w.held, job.Tokens, job.Params.Seed != nil); n > most {
			best, most = i, n
		}
	}
	w := p.idle[best]
	p.idle = slices.Delete(p.idle, best, best+1)
	return w, nil
}

// release hands a worker to the first in the queue, or makes it idle.
func (p *Pool) release(w *Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.idle = append(p.idle, w)
		return
	}
	p.queue[0] <- w
	p.queue = slices.Delete(p.queue, 0, 1)
}

// abandon leaves the queue. If a grant was faster, its worker is handed on.
func (p *Pool) abandon(grant chan *Worker) {
	p.mu.Lock()
	i := slices.Index(p.queue, grant)
	if i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
	}
	p.mu.Unlock()
	if i < 0 {
		p.release(<-grant)
	}
}
