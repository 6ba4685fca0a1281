package route

import (
	"context"
	"errors"
	"slices"
	"time"
)

// lookAgain is how often somebody who waits looks at what nobody tells of: replicas that come and go, breakers whose time is over.
const lookAgain = 100 * time.Millisecond

// await calls try, with the mutex held, until it says that the waiting is over. Those who wait do so in line: try learns whether it is
// the turn of this one.
func (g *Group) await(ctx context.Context, try func(turn bool) (bool, error)) error {
	g.mu.Lock()
	over, err := try(len(g.waiting) == 0)
	if over || err != nil {
		g.mu.Unlock()
		return err
	}
	place := make(chan struct{}, 1)
	g.waiting = append(g.waiting, place)
	g.mu.Unlock()
	defer g.leave(place)
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case <-place:
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if over, err := g.attempt(place, try); over || err != nil {
			return err
		}
	}
}

func (g *Group) attempt(place chan struct{}, try func(turn bool) (bool, error)) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return try(g.waiting[0] == place)
}

// leave takes a place out of the line. What it was told goes to the next.
func (g *Group) leave(place chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = slices.DeleteFunc(g.waiting, func(c chan struct{}) bool { return c == place })
	g.wake()
}

// wake tells the first in line that something has changed. The mutex is held.
func (g *Group) wake() {
	if len(g.waiting) == 0 {
		return
	}
	select {
	case g.waiting[0] <- struct{}{}:
	default: // it knows already
	}
}

// WaitReady waits until a replica could take a request, every replica has failed for good, or ctx ends.
func (g *Group) WaitReady(ctx context.Context) error {
	return g.await(ctx, func(turn bool) (bool, error) {
		if err := g.lost(); err != nil {
			return true, err
		}
		free, _ := g.free(want{}, nil)
		return turn && len(free) > 0, nil
	})
}

// lost is the error of a group whose replicas have all failed for good. The mutex is held.
func (g *Group) lost() error {
	var errs []error
	for _, r := range g.replicas {
		if r.dead == nil {
			return nil
		}
		errs = append(errs, r.dead)
	}
	return errors.Join(errs...)
}

// acquire waits for a replica, in line. It does not wait while there is none that could be waited for.
func (g *Group) acquire(ctx context.Context, w want) (*lease, error) {
	var l *lease
	err := g.await(ctx, func(turn bool) (bool, error) {
		if !g.anyUsable(w) {
			return true, g.unavailable(w)
		}
		if turn {
			l = g.take(w, nil)
		}
		return l != nil, nil
	})
	return l, err
}

// want is what a request wants of a replica.
type want struct {
	key     *key // nil: any is as good as another
	sampled bool // tokens are chosen by the request's parameters
}

// suits says that the replica can do it, if it can do anything.
func (v view) suits(w want) bool { return !w.sampled || v.info.Samples && v.info.Unsampled == "" }

// anyUsable reports whether a replica could run a request, if not now then soon. The mutex is held.
func (g *Group) anyUsable(w want) bool {
	return slices.ContainsFunc(g.replicas, func(r *replica) bool { v := g.look(r); return v.usable && v.suits(w) })
}

// free are the replicas that could run a request now, but for those tried already. The mutex is held.
func (g *Group) free(w want, tried []*replica) (free []*replica, all []candidate) {
	for _, r := range g.replicas {
		if slices.Contains(tried, r) {
			continue
		}
		if v := g.look(r); v.free && v.suits(w) {
			free, all = append(free, r), append(all, r.candidate(&v.info))
		}
	}
	return free, all
}

// take picks a free replica, nil if there is none. The mutex is held.
func (g *Group) take(w want, tried []*replica) *lease {
	free, all := g.free(w, tried)
	if len(free) == 0 {
		return nil
	}
	at, why := pick(all, w.key, g.cfg.StickyLoad, g.dice)
	if tried != nil {
		why = reasonFailover
	}
	return g.lend(free[at], why)
}

// another takes a replica that was not tried yet, nil if none is free: a request that has failed once does not wait here.
func (g *Group) another(w want, tried []*replica) *lease {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.take(w, tried)
}
