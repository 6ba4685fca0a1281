package route

import (
	"errors"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"

	"qr-gateway/backends"
)

// buckets is how many parts a breaker's window moves on by.
const buckets = 10

// replica is a backend and the group's books about it, which the group's mutex guards.
type replica struct {
	Replica
	capacity float64 // workers times weight, where the mean weight is 1
	breaker  *gobreaker.TwoStepCircuitBreaker[struct{}]

	inFlight int
	trial    bool      // one of them tries a breaker that is half open
	opened   time.Time // when the breaker was last opened
	accepted bool      // was found to serve the group's model
	dead     error     // its run has ended for good
	counts   counts
	said     string // the state that was last logged
}

// counts only grow.
type counts struct {
	picks     map[reason]uint64
	failures  uint64 // that the breaker counted
	failovers uint64 // requests that went on to another replica
}

var (
	errFailed   = errors.New("the replica failed")
	errExcluded = errors.New("says nothing about the replica")
)

func (g *Group) newReplica(r Replica, capacity float64) *replica {
	out := &replica{Replica: r, capacity: capacity, counts: counts{picks: map[reason]uint64{}}}
	b := g.cfg.Breaker
	out.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name: r.Name, MaxRequests: 1, Timeout: b.Open, Interval: b.Window, BucketPeriod: b.Window / buckets,
		ReadyToTrip: func(c gobreaker.Counts) bool { return int(c.TotalFailures) >= b.Failures },
		IsExcluded:  func(err error) bool { return errors.Is(err, errExcluded) },
	})
	return out
}

// view is a replica as it is now.
type view struct {
	info   backends.Info
	state  string
	reason string
	usable bool // could run a request, if not now then when another has ended
	free   bool // could run one now
}

// look sees how a replica is. The mutex is held.
func (g *Group) look(r *replica) view {
	v := view{info: r.Backend.Info()}
	v.state, v.reason = v.info.State, v.info.Reason
	if r.dead != nil {
		v.state, v.reason = stateFailed, r.dead.Error()
		return v
	}
	if !v.info.Ready {
		return v
	}
	if err := g.accept(r, v.info); err != nil {
		v.state, v.reason = stateRefused, err.Error()
		return v
	}
	switch r.breaker.State() {
	case gobreaker.StateOpen:
		v.state, v.reason = statePaused, r.pause(g.cfg.Breaker)
		return v
	case gobreaker.StateHalfOpen:
		v.state, v.reason = stateTrying, "it failed before; one request tries it"
		v.usable, v.free = true, !r.trial
		return v
	case gobreaker.StateClosed:
	}
	v.usable, v.free = true, r.inFlight < r.Workers
	return v
}

// States of a replica: those of its backend that mean something here, and some more.
const (
	stateStarting = "starting"
	stateReady    = "ready"
	stateFailed   = "failed"  // for good
	stateRefused  = "refused" // serves something else than the others
	statePaused   = "paused"  // by its breaker
	stateTrying   = "trying"  // its breaker is half open
)

func (r *replica) pause(b Breaker) string {
	rest := max(b.Open-time.Since(r.opened), 0).Round(time.Second)
	return fmt.Sprintf("%d requests failed within %s; it is tried again in %s", b.Failures, b.Window, rest)
}

// accept compares a replica that is ready with the others. The mutex is held.
func (g *Group) accept(r *replica, info backends.Info) error {
	if g.reference == nil {
		g.reference = &reference{name: r.Name, info: info}
	}
	if err := g.reference.differs(r.Name, info); err != nil {
		return err
	}
	r.accepted = true
	return nil
}

// lease is a replica that runs a request.
type lease struct {
	group *Group
	of    *replica
	done  func(error) // tells the breaker
	trial bool
}

// lend takes a replica for a request. The mutex is held.
func (g *Group) lend(r *replica, why reason) *lease {
	done, err := r.breaker.Allow()
	if err != nil {
		return nil
	}
	l := &lease{group: g, of: r, done: done, trial: r.breaker.State() == gobreaker.StateHalfOpen}
	r.trial = r.trial || l.trial
	r.inFlight++
	r.counts.picks[why]++
	return l
}

// end gives the replica back. The error is nil, errFailed or errExcluded.
func (l *lease) end(outcome error) {
	g, r := l.group, l.of
	g.mu.Lock()
	defer g.mu.Unlock()
	r.inFlight--
	if l.trial {
		r.trial = false
	}
	before := r.breaker.State()
	l.done(outcome)
	if errors.Is(outcome, errFailed) {
		r.counts.failures++
	}
	if before != gobreaker.StateOpen && r.breaker.State() == gobreaker.StateOpen {
		r.opened = time.Now()
	}
	g.wake()
}
