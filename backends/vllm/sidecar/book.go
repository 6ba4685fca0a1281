package sidecar

import (
	"sync"
	"time"
)

// entry is what is known of one rid. Its fields are the book's, but for the trail and the request themselves.
type entry struct {
	trail    *trail   // nil: finished
	req      *request // nil: not begun
	made     time.Time
	finished bool // its answer has ended: the rid is spent
}

// book has the requests by rid.
type book struct {
	keep time.Duration
	most int

	mu   sync.Mutex // guards all
	rids map[string]*entry
}

func newBook(keep time.Duration, most int) *book {
	return &book{keep: keep, most: most, rids: map[string]*entry{}}
}

// followedKeeps is how many times longer an answer is kept that somebody follows: its request may wait in the engine's own line.
const followedKeeps = 6

// used is when the entry was of use last.
func (e *entry) used() time.Time {
	if e.req != nil {
		return time.Unix(0, e.req.seen.Load())
	}
	return e.made
}

// busy reports whether somebody follows the answer or shows its rows.
func (e *entry) busy() bool { return e.trail.followed() || e.req != nil && e.req.held.Load() }

// at is the entry of a rid, which may be new. nil: there is no room for one. What had to make room is to be forgotten.
func (b *book) at(rid string, now time.Time) (e, forget *entry) {
	if e := b.rids[rid]; e != nil {
		return e, nil
	}
	if len(b.rids) >= b.most {
		if forget = b.evict(now); len(b.rids) >= b.most {
			return nil, forget
		}
	}
	e = &entry{trail: &trail{}, made: now}
	b.rids[rid] = e
	return e, forget
}

// evict drops the rids that are spent, or else the oldest that nobody follows or shows.
func (b *book) evict(now time.Time) *entry {
	oldest, at := "", now
	for rid, e := range b.rids {
		if e.finished {
			delete(b.rids, rid)
			continue
		}
		if last := e.used(); !e.busy() && !last.After(at) {
			oldest, at = rid, last
		}
	}
	if len(b.rids) < b.most || oldest == "" {
		return nil
	}
	e := b.rids[oldest]
	delete(b.rids, oldest)
	return e
}

// sweep drops what hasn't been of use for long.
func (b *book) sweep(now time.Time) {
	b.mu.Lock()
	var old []*entry
	for rid, e := range b.rids {
		keep := b.keep
		if !e.finished && e.trail.followed() {
			keep *= followedKeeps
		}
		if now.Sub(e.used()) >= keep {
			old = append(old, e)
			delete(b.rids, rid)
		}
	}
	b.mu.Unlock()
	for _, e := range old {
		e.forget()
	}
}

// forget ends what has been dropped. The book must not be locked.
func (e *entry) forget() {
	if e == nil || e.finished {
		return
	}
	e.trail.finish()
	if e.req != nil {
		e.req.forget()
	}
}

func (b *book) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rids)
}
