package vllm

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm/choice"
)

// ledger holds what was chosen for one request, by step. One goroutine writes it down, and one other asks for it.
type ledger struct {
	told chan struct{} // has a value when something has changed

	mu      sync.Mutex // guards all below
	entries []entry
	last    int            // the highest step that is known; -1: none
	session string         // of the engine that the choices are for
	stop    *choice.Choice // that ended the answer
	ended   bool           // nothing more comes
	err     error          // why, if it is not the end
}

// entry is the latest choice of a step.
type entry struct {
	token  int32
	status choice.Status
	err    *backends.Error // why it was not a token
	times  int             // how often the step was chosen; 0: it was not
}

// mostSteps bounds the steps that are kept: no context is as long.
const mostSteps = 1 << 22

func newLedger() *ledger { return &ledger{told: make(chan struct{}, 1), last: -1} }

// follow writes down what t tells until it ends or ctx does. It calls stopped when a choice ends the answer.
func (l *ledger) follow(ctx context.Context, t Trail, stopped func(*choice.Choice)) {
	for {
		c, err := t.Next(ctx)
		if err != nil {
			l.end(err)
			return
		}
		l.put(c)
		if c.Status == choice.Stop {
			stopped(&c)
		}
	}
}

func (l *ledger) put(c choice.Choice) {
	if c.Step < 0 || c.Step >= mostSteps {
		return
	}
	l.mu.Lock()
	for len(l.entries) <= c.Step {
		l.entries = append(l.entries, entry{})
	}
	l.entries[c.Step] = entry{token: c.Token, status: c.Status, err: c.Err, times: l.entries[c.Step].times + 1}
	l.last, l.session = max(l.last, c.Step), c.Session
	if c.Status == choice.Stop {
		l.stop = &c
	}
	l.mu.Unlock()
	l.tell()
}

func (l *ledger) end(err error) {
	l.mu.Lock()
	l.ended = true
	if !errors.Is(err, io.EOF) {
		l.err = err
	}
	l.mu.Unlock()
	l.tell()
}

func (l *ledger) tell() {
	select {
	case l.told <- struct{}{}:
	default: // it is told already
	}
}

// at is the choice of a step, once it is there. times is 0 where it is not there in time, or never comes: ledgers of steps that follow have it, or the
// trail has ended.
func (l *ledger) at(ctx context.Context, step int, limit time.Duration) entry {
	e, _ := l.wait(ctx, step, 0, limit)
	return e
}

// again waits, after a choice that was found wrong, for another one of the same step: the server may show a step twice.
func (l *ledger) again(ctx context.Context, step int, was entry, limit time.Duration) (entry, bool) {
	return l.wait(ctx, step, was.times, limit)
}

// wait returns the entry of a step as soon as it was chosen more often than so many times, or that can't be any more.
func (l *ledger) wait(ctx context.Context, step, times int, limit time.Duration) (e entry, ok bool) {
	var timer *time.Timer
	for {
		e, known, over := l.look(step, times)
		if known || over {
			return e, known
		}
		if timer == nil {
			timer = time.NewTimer(limit)
			defer timer.Stop()
		}
		select {
		case <-l.told:
		case <-timer.C:
			return e, false
		case <-ctx.Done():
			return e, false
		}
	}
}

func (l *ledger) look(step, times int) (e entry, known, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if step < len(l.entries) {
		e = l.entries[step]
	}
	return e, e.times > times, l.ended || l.last > step
}

// stopped is the choice that ended the answer, or nil.
func (l *ledger) stopped() *choice.Choice {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stop
}

// from is the session that choices came from, and why none come any more, if that is known.
func (l *ledger) from() (session string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session, l.err
}
