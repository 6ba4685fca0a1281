package http

import (
	"sync"
	"time"
)

// budget keeps calls within a number a minute, and waits out a quota that the service says is used up.
type budget struct {
	perMinute int // 0: no limit

	mu    sync.Mutex  // guards what follows
	calls []time.Time // of the last minute, the oldest first
	hold  time.Time   // not asked before
}

// take takes n calls, all or none. Where it can't, it returns how long it will be.
func (b *budget) take(now time.Time, n int) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if wait := b.hold.Sub(now); wait > 0 {
		return wait, false
	}
	if b.perMinute == 0 {
		return 0, true
	}
	gone := 0
	for gone < len(b.calls) && now.Sub(b.calls[gone]) >= time.Minute {
		gone++
	}
	b.calls = append(b.calls[:0], b.calls[gone:]...)
	if n > b.perMinute {
		return 0, false // never
	}
	if over := len(b.calls) + n - b.perMinute; over > 0 {
		return b.calls[over-1].Add(time.Minute).Sub(now), false
	}
	for range n {
		b.calls = append(b.calls, now)
	}
	return 0, true
}

// usedUp holds all calls for d.
func (b *budget) usedUp(now time.Time, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := now.Add(d); until.After(b.hold) {
		b.hold = until
	}
}
