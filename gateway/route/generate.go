package route

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
)

// Generate implements [backends.Backend]. It waits for a replica, in line with others, and gives p to another one when the first fails
// before the client has anything of the answer.
func (g *Group) Generate(ctx context.Context, p *backends.Prepared, emit func(backends.Event) error) (*backends.Result, error) {
	w := g.want(p)
	l, err := g.acquire(ctx, w)
	if err != nil {
		return nil, err
	}
	t := &trial{}
	for {
		res, err := t.run(ctx, l, p, emit)
		if err == nil {
			g.sign(res, l.of, len(t.tried))
			return res, nil
		}
		if !t.again || len(t.tried) >= g.cfg.Tries {
			return nil, t.mark(err)
		}
		if l = g.another(w, t.tried); l == nil {
			return nil, t.mark(g.later(w, t.tried, err))
		}
		g.failedOver(ctx, p, t.tried[len(t.tried)-1], l.of, err)
	}
}

// want is that of p, without a key where it makes no difference.
func (g *Group) want(p *backends.Prepared) want {
	w := want{sampled: p.Request.Sampled}
	if g.cfg.Sticky && len(g.replicas) > 1 {
		w.key = new(keyOf(p))
	}
	return w
}

// sign notes who made the answer, where it isn't plain.
func (g *Group) sign(res *backends.Result, by *replica, tries int) {
	if len(g.replicas) == 1 {
		return
	}
	res.Stats.Replica = by.Name
	if tries > 1 {
		res.Stats.Tries = tries
	}
}

func (g *Group) failedOver(ctx context.Context, p *backends.Prepared, from, to *replica, why error) {
	g.mu.Lock()
	from.counts.failovers++
	g.mu.Unlock()
	g.log.WarnContext(ctx, "request goes to another replica", "request", p.Request.ID, "from", from.Name, "to", to.Name, "error", why)
}

// trial is the way of one request over the replicas.
type trial struct {
	tried   []*replica
	visible bool // the client has something of the answer
	refused bool // emit has failed: it's the client's doing
	lost    int  // how many replicas it was lost on
	had     bool // one of them may have run it
	again   bool // the next may have it
}

// run gives the request to one replica and judges what came of it.
func (t *trial) run(ctx context.Context, l *lease, p *backends.Prepared, emit func(backends.Event) error) (res *backends.Result, err error) {
	t.tried = append(t.tried, l.of)
	outcome := errExcluded // should the backend panic
	defer func() { l.end(outcome) }()
	res, err = l.of.Backend.Generate(ctx, p, func(e backends.Event) error {
		t.visible = t.visible || dispatch.Visible(e)
		err := emit(e)
		t.refused = t.refused || err != nil
		return err
	})
	t.again, outcome = t.judge(ctx, err)
	return res, err
}

// judge says what an ending means for the replica, and whether another one may have the request. A request that was lost twice is likely
// to be what ends the engines, and goes no further.
func (t *trial) judge(ctx context.Context, err error) (again bool, outcome error) {
	var e *backends.Error
	switch {
	case err == nil:
		return false, nil
	case ctx.Err() != nil || t.refused || !errors.As(err, &e):
		return false, errExcluded
	}
	t.had = t.had || e.MayHaveRun || e.Kind == backends.KindLost || e.Kind == backends.KindTimeout
	if e.Code == backends.CodeUnsampled || e.Code == backends.CodeMismatched {
		return !t.visible, errExcluded // requests of others may do well there
	}
	switch e.Kind {
	case backends.KindLost:
		t.lost++
		return !t.visible && t.lost < 2, errFailed
	case backends.KindUnavailable, backends.KindUpstream:
		return !t.visible, errFailed
	case backends.KindTimeout:
		return !t.visible && e.Code != totalTimeout, errFailed
	case backends.KindLimited:
		return !t.visible, errExcluded
	case backends.KindInvalid, backends.KindTooLong:
		return false, nil
	case backends.KindEntropy, backends.KindModel, backends.KindInternal:
	}
	return false, errExcluded
}

// mark tells whoever gets err, of the last replica, that one of them may have run the request.
func (t *trial) mark(err error) error {
	e, ok := errors.AsType[*backends.Error](err)
	if !ok || !t.had || e.MayHaveRun {
		return err
	}
	out := *e
	out.MayHaveRun = true
	return &out
}

// totalTimeout is the code of a request that had all the time it may have.
const totalTimeout = "total_timeout"

// later is the error of a request that failed on one replica while the others are busy. The queue keeps what is unavailable until it is not;
// it keeps what was lost too, but counts how often. What can't be sampled it doesn't keep, since it would soon be back here.
func (g *Group) later(w want, tried []*replica, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	busy := slices.ContainsFunc(g.replicas, func(r *replica) bool {
		v := g.look(r)
		return !slices.Contains(tried, r) && v.usable && v.suits(w)
	})
	if e, ok := errors.AsType[*backends.Error](err); !busy || errors.Is(err, backends.ErrLost) || ok && e.Code == backends.CodeUnsampled {
		return err
	}
	return &backends.Error{
		Kind: backends.KindUnavailable, Code: "model_unavailable", Param: "model", Err: err,
		Message: fmt.Sprintf("replica %s of model %s failed, and the others are busy", tried[len(tried)-1].Name, g.cfg.Model),
		Hint:    "try again in a while",
	}
}
