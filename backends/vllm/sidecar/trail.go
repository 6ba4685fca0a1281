package sidecar

import (
	"context"
	"errors"
	"io"
	"sync"

	"qr-gateway/backends/account"
	"qr-gateway/backends/vllm/choice"
)

// ErrFollowed ends a trail whose answer somebody else follows now.
var ErrFollowed = errors.New("read choice: the answer is followed by somebody else now")

// unfollowed is how many choices are kept of an answer that nobody follows: what a follower who comes late may still want.
const unfollowed = 64

// trail is the choices of one answer on their way to the one who follows it.
type trail struct {
	mu       sync.Mutex // guards all below
	kept     []choice.Choice
	from     int // place of the oldest kept one, counted from the first of the answer
	read     int // place that is read next
	first    int // step of the first choice that is wanted
	reader   *reader
	finished bool
}

// reader is the one who follows.
type reader struct{ changed chan struct{} }

func (r *reader) tell() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// push adds a choice. One of the same step takes the place of its forerunner where that hasn't been read.
func (t *trail) push(c *choice.Choice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.kept)
	if n > 0 && t.kept[n-1].Step == c.Step && t.read < t.from+n {
		t.kept[n-1] = *c
	} else {
		t.kept = append(t.kept, *c)
		t.trim()
	}
	if t.reader != nil {
		t.reader.tell()
	}
}

// trim forgets what is over the bound, half of it at a time.
func (t *trail) trim() {
	most := account.MaxRecords
	if t.reader == nil {
		most = unfollowed
	}
	if len(t.kept) <= most {
		return
	}
	drop := len(t.kept) - most/2
	t.kept = append(t.kept[:0], t.kept[drop:]...)
	clear(t.kept[len(t.kept):cap(t.kept)])
	t.from += drop
	t.read = max(t.read, t.from)
}

// follow makes r the reader, from the first choice of that step on.
func (t *trail) follow(step int) *reader {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reader != nil {
		t.reader.tell()
	}
	t.reader, t.read, t.first = &reader{changed: make(chan struct{}, 1)}, t.from, step
	return t.reader
}

// finish lets the reader end once it has read all.
func (t *trail) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finished = true
	if t.reader != nil {
		t.reader.tell()
	}
}

func (t *trail) followed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reader != nil
}

// leave ends the following of r.
func (t *trail) leave(r *reader) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reader == r {
		t.reader = nil
	}
}

// next waits for the choice that r reads next.
func (t *trail) next(ctx context.Context, r *reader) (choice.Choice, error) {
	for {
		c, ok, err := t.take(r)
		if ok || err != nil {
			return c, err
		}
		select {
		case <-r.changed:
		case <-ctx.Done():
			return choice.Choice{}, ctx.Err()
		}
	}
}

func (t *trail) take(r *reader) (c choice.Choice, ok bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reader != r {
		return c, false, ErrFollowed
	}
	for t.read < t.from+len(t.kept) {
		c = t.kept[t.read-t.from]
		t.read++
		if c.Step >= t.first {
			return c, true, nil
		}
	}
	if t.finished {
		return c, false, io.EOF
	}
	return c, false, nil
}
