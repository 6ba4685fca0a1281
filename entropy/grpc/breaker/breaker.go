// Package breaker decides whether a remote source may be asked, and how long its answer may take. It starts nothing, sleeps never and
// knows nothing of networks: callers tell it what happened, and a clock and a dice are handed in. One mutex guards all of its state, so a
// [Breaker] may be shared by goroutines. The states are drawn in design.md.
package breaker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// State says what a call would meet.
type State string

// The states.
const (
	Closed   State = "closed"    // calls pass
	Open     State = "open"      // calls are refused until a time
	HalfOpen State = "half_open" // one call, the trial, passes; it decides
)

// Force overrides what the breaker has found.
type Force string

// What an administrator may say.
const (
	Auto        Force = ""       // it finds out itself
	ForceOpen   Force = "open"   // refuse every call
	ForceClosed Force = "closed" // let every call pass, count nothing
)

// Outcome is how a call ended.
type Outcome string

// The outcomes.
const (
	Success  Outcome = "success"
	Failure  Outcome = "failure"  // time-out, lost connection, broken answer
	Excluded Outcome = "excluded" // caller gone, refused, quota: says nothing about the link
)

// ErrOpen is returned by Begin when the call may not be made.
var ErrOpen = errors.New("the breaker is open")

// Event is a change of state. Events come in order.
type Event struct {
	From, To State
	At       time.Time
	Until    time.Time // of an open breaker: when a trial may be made; zero when forced
	Failures int       // in a row
	Forced   bool
}

// Deps are what a breaker takes from outside; all may be nil.
type Deps struct {
	Now     func() time.Time
	Dice    func() float64 // uniform in [0, 1)
	Changed func(Event)    // called with the breaker locked: it must not call back
}

// Breaker is an adaptive time limit and a circuit breaker.
type Breaker struct {
	cfg  Config
	deps Deps

	mu     sync.Mutex // guards all below
	state  State
	force  Force
	gen    uint64 // of the state; a call of an earlier one decides nothing
	fails  int    // calls in a row
	opens  int    // times opened without a success
	until  time.Time
	trial  bool // the one call of a half-open breaker is under way
	window window
}

// New returns a closed breaker.
func New(cfg Config, deps Deps) (*Breaker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Dice == nil {
		deps.Dice = rand.Float64
	}
	if deps.Changed == nil {
		deps.Changed = func(Event) {}
	}
	return &Breaker{cfg: cfg, deps: deps, state: Closed, window: newWindow(cfg.Window)}, nil
}

// Call is one call that was let through. It is ended exactly once.
type Call struct {
	gen   uint64
	Trial bool // it decides a half-open breaker: make sure that it really asks
}

// Begin lets a call through or returns an error that is [ErrOpen] and says until when.
func (b *Breaker) Begin() (Call, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.force == ForceClosed:
		return Call{gen: b.gen}, nil
	case b.force == ForceOpen:
		return Call{}, fmt.Errorf("%w by order", ErrOpen)
	case b.state == Closed:
		return Call{gen: b.gen}, nil
	case b.state == Open && b.deps.Now().Before(b.until):
		return Call{}, fmt.Errorf("%w for another %v", ErrOpen, b.until.Sub(b.deps.Now()).Round(time.Millisecond))
	case b.state == Open:
		b.change(HalfOpen)
	}
	if b.trial {
		return Call{}, fmt.Errorf("%w while one call tries", ErrOpen)
	}
	b.trial = true
	return Call{gen: b.gen, Trial: true}, nil
}

// Timeout is how long the next attempt may take: the 99th percentile of what was seen times the multiplier, at least the floor, at most
// the cap. floor raises the configured one, for a draw that is known to take long.
func (b *Breaker) Timeout(floor time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := time.Duration(float64(b.p99()) * b.cfg.Multiplier)
	return min(max(limit, b.cfg.Floor, floor), b.cfg.Timeout)
}

// Sample notes what one attempt of a call took: the latency of an answer, or the time that was given to one that did not come. The latter
// is a lower bound only, and is counted so that the limit can grow. Other failures say nothing about latency and are not told.
func (b *Breaker) Sample(c Call, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.gen == b.gen {
		b.window.add(took)
	}
}

// End ends a call. The outcome of one that began before the last change of state is dropped. It reports whether the breaker opened.
func (b *Breaker) End(c Call, o Outcome) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.gen != b.gen || b.force != Auto {
		return false
	}
	if c.Trial {
		b.trial = false
	}
	switch o {
	case Success:
		b.succeed()
	case Failure:
		return b.fail()
	case Excluded:
	}
	return false
}

func (b *Breaker) succeed() {
	b.fails, b.opens = 0, 0
	if b.state == HalfOpen {
		b.change(Closed)
	}
}

// fail opens at the limit, or at once when the trial failed. The time doubles with each opening and is shortened by chance, so that
// clients of one server don't come back together.
func (b *Breaker) fail() bool {
	b.fails++
	if b.state != HalfOpen && b.fails < b.cfg.Failures {
		return false
	}
	wait, most := b.cfg.Open, max(b.cfg.Open, b.cfg.OpenMax)
	for range b.opens {
		if wait >= most/2 {
			wait = most
			break
		}
		wait *= 2
	}
	wait = time.Duration(float64(wait) * (1 - b.cfg.Jitter*b.deps.Dice()))
	b.opens++
	b.until = b.deps.Now().Add(wait)
	b.change(Open)
	return true
}

// change goes to another state; calls under way no longer count.
func (b *Breaker) change(to State) {
	e := Event{From: b.state, To: to, At: b.deps.Now(), Failures: b.fails, Forced: b.force != Auto}
	if to == Open {
		e.Until = b.until
	}
	b.state, b.trial = to, false
	b.gen++
	b.deps.Changed(e)
}

// Force opens or closes the breaker by order, or with [Auto] lets it find out itself again, from a clean start.
func (b *Breaker) Force(f Force) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f == b.force {
		return
	}
	from := b.shown()
	b.force = f
	b.state, b.fails, b.opens, b.trial, b.until = Closed, 0, 0, false, time.Time{}
	b.gen++
	b.deps.Changed(Event{From: from, To: b.shown(), At: b.deps.Now(), Forced: f != Auto})
}

// shown is the state as callers meet it.
func (b *Breaker) shown() State {
	switch b.force {
	case ForceOpen:
		return Open
	case ForceClosed:
		return Closed
	default:
		return b.state
	}
}

// Status is a picture of the breaker.
type Status struct {
	State    State
	Force    Force
	P99      time.Duration // the cap until there are enough samples
	Timeout  time.Duration
	Samples  int
	Failures int       // in a row
	Opens    int       // without a success
	Until    time.Time // when an open one lets the trial pass
}

// Status returns the state of things; it changes nothing.
func (b *Breaker) Status() Status {
	limit := b.Timeout(0)
	b.mu.Lock()
	defer b.mu.Unlock()
	return Status{
		State: b.shown(), Force: b.force, P99: b.p99(), Timeout: limit, Samples: b.window.n,
		Failures: b.fails, Opens: b.opens, Until: b.until,
	}
}

func (b *Breaker) p99() time.Duration {
	if b.window.n < b.cfg.MinSamples {
		return b.cfg.Timeout
	}
	return b.window.sorted[b.cfg.rank(b.window.n)]
}
