package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"qr-gateway/backends"
)

// Prepare implements [backends.Backend]. Any replica can do it, since all serve the same model. It waits for one that is ready.
func (g *Group) Prepare(ctx context.Context, req *backends.Request) (*backends.Prepared, error) {
	var tried []*replica
	for {
		r, others, err := g.preparer(ctx, want{sampled: req.Sampled}, tried)
		if err != nil {
			return nil, err
		}
		p, err := g.prepareOn(ctx, r, others, req)
		if err == nil || !others || !elsewhere(ctx, err) {
			return p, err
		}
		tried = append(tried, r)
	}
}

// elsewhere reports an error that another replica may not have.
func elsewhere(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	var e *backends.Error
	if !errors.As(err, &e) {
		return errors.Is(err, errSlow)
	}
	return slices.Contains([]backends.Kind{backends.KindUnavailable, backends.KindLost, backends.KindUpstream, backends.KindTimeout}, e.Kind)
}

// errSlow ends the preparing on a replica that takes too long.
var errSlow = errors.New("the replica took too long to prepare the request")

// prepareOn has a replica prepare the request, within a limit if there is another one that could.
func (g *Group) prepareOn(ctx context.Context, r *replica, others bool, req *backends.Request) (*backends.Prepared, error) {
	if !others {
		return r.Backend.Prepare(ctx, req)
	}
	limited, cancel := context.WithTimeoutCause(ctx, g.cfg.PrepareTry, errSlow)
	defer cancel()
	p, err := r.Backend.Prepare(limited, req)
	if err == nil || ctx.Err() != nil || !errors.Is(context.Cause(limited), errSlow) {
		return p, err
	}
	g.slow(ctx, r)
	return nil, errSlow
}

// slow counts a replica that hangs as one that has failed.
func (g *Group) slow(ctx context.Context, r *replica) {
	g.mu.Lock()
	l := g.lend(r, reasonLoad)
	if l != nil {
		r.counts.picks[reasonLoad]--
	}
	g.mu.Unlock()
	if l != nil {
		l.end(errFailed)
	}
	g.log.WarnContext(ctx, "replica is slow to prepare a request; another one does", "replica", r.Name, "limit", g.cfg.PrepareTry.String())
}

// preparer finds a replica that was not tried, and tells whether there are more. A lone one waits for itself in its own way.
func (g *Group) preparer(ctx context.Context, w want, tried []*replica) (r *replica, others bool, err error) {
	if len(g.replicas) == 1 {
		return g.replicas[0], false, nil
	}
	over := time.Now().Add(g.cfg.Wait)
	err = g.watch(ctx, func() (bool, error) {
		fit := g.preparers(w, tried)
		if len(fit) > 0 {
			r, others = fit[0], len(fit) > 1
			return true, nil
		}
		if g.hopeless() || time.Now().After(over) {
			return true, g.unavailable(w)
		}
		return false, nil
	})
	return r, others, err
}

// hopeless reports that no replica is worth waiting for: engines come back by themselves, servers of others when they do. The mutex is held.
func (g *Group) hopeless() bool {
	for _, r := range g.replicas {
		v := g.look(r)
		away := v.info.Raw && v.state != stateStarting && v.state != statePaused
		if r.dead == nil && !away {
			return false
		}
	}
	return true
}

// preparers are the replicas that could prepare a request, the best first. The mutex is held.
func (g *Group) preparers(w want, tried []*replica) []*replica {
	var usable, paused []*replica
	var all []candidate
	for _, r := range g.replicas {
		if slices.Contains(tried, r) {
			continue
		}
		switch v := g.look(r); {
		case !v.suits(w):
		case v.usable:
			usable = append(usable, r)
			all = append(all, r.candidate(&v.info))
		case v.state == statePaused:
			paused = append(paused, r)
		}
	}
	if len(usable) > 1 {
		at, _ := pick(all, nil, 0, g.dice)
		usable[0], usable[at] = usable[at], usable[0]
	}
	return append(usable, paused...)
}

// watch calls try, with the mutex held, until it says that the waiting is over. Unlike await it has no line.
func (g *Group) watch(ctx context.Context, try func() (bool, error)) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		g.mu.Lock()
		over, err := try()
		g.mu.Unlock()
		if over || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unavailable says why no replica can take a request. Where one could take others, waiting in the queue is of no use. The mutex is held.
func (g *Group) unavailable(w want) error {
	var why []string
	code := "model_unavailable"
	for _, r := range g.replicas {
		v := g.look(r)
		text := v.state
		if v.usable && !v.suits(w) {
			v.reason, code = "chooses no tokens by qr_ parameters: "+v.info.Unsampled, backends.CodeUnsampled
		}
		if v.reason != "" {
			text += ": " + v.reason
		}
		if len(g.replicas) > 1 {
			text = fmt.Sprintf("replica %s is %s", r.Name, text)
		} else {
			text = "it is " + text
		}
		why = append(why, text)
	}
	return &backends.Error{
		Kind: backends.KindUnavailable, Code: code, Param: "model",
		Message: fmt.Sprintf("model %s can't serve now: %s", g.cfg.Model, strings.Join(why, "; ")),
		Hint:    "try again in a while",
	}
}
