package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/queue"
)

// Reader reads the logs of jobs.
type Reader interface {
	// Read is as in [queue.Log].
	Read(ctx context.Context, id string, seq int64) (<-chan queue.Entry, error)
}

// Joiner is an optional power of a [Sink]: to be told that what follows is the answer to a request that was sent before.
type Joiner interface {
	// Joined is called before all else, with the id of the first job.
	Joined(first string)
}

// What makes the log of an answer useless.
var (
	errGap  = errors.New("part of it is missing in the log")
	errNone = errors.New("it was not kept")
	errBack = errors.New("what another worker went on behind is not what came before it")
)

// succession is how long whoever repeats a request waits for another worker to take the answer up.
const succession = 5 * time.Second

// joining is one who repeats a request. It belongs to the goroutine that called Do.
type joining struct {
	*follower
	hub   *Dispatcher
	first *RepeatError
	said  bool // what came before the part at hand is known
}

// join follows the answer of the job that f's repeats, from its beginning. It never cancels what it follows.
func (d *Dispatcher) join(ctx context.Context, f *follower, first *RepeatError) (*backends.Result, error) {
	if first.Other || d.deps.Log == nil || !d.cfg.Join {
		return nil, first
	}
	d.retried(f.job.Model, RetryJoined)
	if s, ok := f.sink.(Joiner); ok {
		s.Joined(first.First)
	}
	j := &joining{follower: f, hub: d, first: first}
	ctx, stop := context.WithCancel(ctx) // of the readers of logs
	defer stop()
	f.waits, f.retried, f.epoch, f.seq, f.position = nil, nil, 0, 0, -1
	f.resumes = resumes{}
	f.place(first.ticket.Position, first.ticket.Wait)
	err := j.follow(ctx)
	if err != nil {
		return nil, err
	}
	f.resumes.tell(f.result)
	return f.result, nil
}

// follow reads the log of the first job, and of those that took its answer up.
func (j *joining) follow(ctx context.Context) error {
	id := j.first.ticket.ID
	entries, err := j.open(ctx, id)
	for n := 1; ; n++ {
		if err == nil {
			err = j.read(ctx, id, entries)
		}
		switch {
		case err == nil, ctx.Err() != nil:
			return err
		case !j.mayGoOn(err, n):
			return j.ending(err)
		}
		id = successor(j.first.ticket.ID, n)
		next, none := j.await(ctx, id)
		if none != nil {
			return err
		}
		j.resumes.cut, entries, err = err, next, nil
		j.epoch, j.seq, j.told, j.said, j.content = 0, 0, false, false, false
	}
}

// mayGoOn says whether another worker may have taken the answer up.
func (j *joining) mayGoOn(err error, n int) bool {
	return j.cut(err) && j.job.Resumes && n <= j.hub.cfg.Resume
}

// open reads the log of a job from its beginning.
func (j *joining) open(ctx context.Context, id string) (<-chan queue.Entry, error) {
	entries, err := j.hub.deps.Log.Read(ctx, id, 1)
	switch {
	case err == nil:
		return entries, nil
	case errors.Is(err, queue.ErrUnavailable), errors.Is(err, queue.ErrClosed):
		return nil, queueError(err)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, j.lacks(err)
}

// lacks is the error for an answer that can't be had whole.
func (j *joining) lacks(why error) error {
	e := *j.first
	e.Why = why
	return &e
}

// await waits for the job that takes the answer up.
func (j *joining) await(ctx context.Context, id string) (<-chan queue.Entry, error) {
	late, again := time.NewTimer(succession), time.NewTicker(shortPause)
	defer late.Stop()
	defer again.Stop()
	for {
		entries, err := j.hub.deps.Log.Read(ctx, id, 1)
		if err == nil {
			return entries, nil
		}
		select {
		case <-again.C:
		case <-late.C:
			return nil, errNone
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// read takes what is in the log of one job until that has ended.
func (j *joining) read(ctx context.Context, id string, entries <-chan queue.Entry) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	states, err := j.hub.deps.Queue.Watch(watching, id)
	if err != nil {
		states = nil // it tells where the job stands, no more
	}
	for {
		select {
		case s, open := <-states:
			if !open {
				states = nil
			} else if s.State == queue.StateQueued {
				j.place(s.Position, s.Wait)
			}
		case e, open := <-entries:
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case !open:
				return j.lacks(errors.New("the queue has lost it"))
			case e.End != nil:
				return j.end(*e.End)
			}
			if err := j.entry(id, e); err != nil {
				return err
			}
			if j.result != nil {
				return nil
			}
		}
	}
}

// end is how a job ended without a last frame in its log.
func (j *joining) end(s queue.Status) error {
	j.first.State = s.State
	if s.State == queue.StateDone {
		return j.lacks(errNone)
	}
	return ended(s)
}

// entry takes one entry of a log.
func (j *joining) entry(id string, e queue.Entry) error {
	all, _, err := ParseEntry(id, e.Epoch, e.Data)
	if err != nil {
		return j.lacks(err)
	}
	for _, l := range all {
		if err := j.stretch(l); err != nil || j.result != nil {
			return err
		}
	}
	return nil
}

// stretch takes part of a run. What was written twice is dropped; what is missing ends the answer.
func (j *joining) stretch(l Logged) error {
	f := l.Frame
	switch {
	case f.Epoch < j.epoch:
		return nil
	case l.Said != nil:
		return j.before(*l.Said)
	case f.Epoch == j.epoch && f.Seq <= j.seq:
		return nil
	case f.Epoch == j.epoch && l.First != j.seq+1, f.Epoch > j.epoch && l.First != 1:
		return j.lacks(errGap)
	}
	return j.frame(f)
}

// before takes what was said before the run at hand: of it, whoever follows a log may lack the end.
func (j *joining) before(s Said) error {
	if j.said {
		return nil
	}
	j.said = true
	r := &j.resumes
	if r.content > len(s.Content) || r.thought > len(s.Reasoning) || !prefix(s.Tokens, r.tokens) {
		return j.lacks(errBack)
	}
	rest := backends.Event{Content: s.Content[r.content:], Reasoning: s.Reasoning[r.thought:], Tokens: s.Tokens[len(r.tokens):]}
	rest, err := r.take(rest)
	if err != nil {
		return err
	}
	r.at = append(r.at, len(r.tokens))
	if !Visible(rest) {
		return nil
	}
	return j.sink.Event(rest)
}

func prefix(whole, part []int32) bool {
	return len(part) <= len(whole) && slices.Equal(whole[:len(part)], part)
}

// successor is the id of the job that takes up the answer of another for the nth time.
func successor(id string, n int) string {
	own, digest := unnamed(id)
	own = fmt.Sprintf("%s~%d", own, n)
	if digest == "" {
		return own
	}
	return strings.Join([]string{own, digest}, mark)
}
