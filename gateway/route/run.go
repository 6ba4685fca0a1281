package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// watchEvery is between two looks at replicas that nobody asks for.
const watchEvery = 250 * time.Millisecond

// runner is a backend that needs somebody to keep it running.
type runner interface{ Run(context.Context) error }

// Run keeps the replicas running until ctx ends. One that fails for good is left out; when all have, Run returns why. It also ends with an
// error when a replica turns out, at its first start, to serve another model than the others.
func (g *Group) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	for _, r := range g.replicas {
		if b, ok := r.Backend.(runner); ok {
			all.Go(func() {
				if err := b.Run(ctx); err != nil && ctx.Err() == nil {
					g.bury(r, err, stop)
				}
			})
		}
	}
	all.Go(func() { g.observe(ctx, stop) })
	all.Wait()
	return ended(ctx)
}

// ended is the cause of a context that the group itself has ended.
func ended(ctx context.Context) error {
	var own *endError
	if errors.As(context.Cause(ctx), &own) {
		return own.err
	}
	return nil
}

// endError ends a run for a reason of the group's own.
type endError struct{ err error }

func (e *endError) Error() string { return e.err.Error() }

// bury notes that a replica has failed for good.
func (g *Group) bury(r *replica, err error, stop context.CancelCauseFunc) {
	if len(g.replicas) > 1 {
		err = fmt.Errorf("replica %s: %w", r.Name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r.dead = err
	g.wake()
	if all := g.lost(); all != nil {
		stop(&endError{all})
	}
}

// observe logs what becomes of the replicas, and finds those that serve another model.
func (g *Group) observe(ctx context.Context, stop context.CancelCauseFunc) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		if err := g.check(ctx); err != nil {
			stop(&endError{err})
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// check looks at each replica once.
func (g *Group) check(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.replicas {
		v := g.look(r)
		if v.state == stateRefused && !r.accepted {
			return fmt.Errorf("check route of model %s: %w", g.cfg.Model, g.reference.differs(r.Name, v.info))
		}
		g.say(ctx, r, v)
	}
	g.wake()
	return nil
}

// say logs a state that is news. A model with one backend has no replicas to speak of, but for its breaker.
func (g *Group) say(ctx context.Context, r *replica, v view) {
	if v.state == r.said {
		return
	}
	was := r.said
	r.said = v.state
	level := slog.LevelInfo
	if !v.usable && was != "" {
		level = slog.LevelWarn
	}
	if len(g.replicas) > 1 || v.state == statePaused || was == statePaused {
		g.log.Log(ctx, level, "replica changed", "replica", r.Name, "state", v.state, "reason", v.reason)
	}
}
