package hub

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
)

// Limits of what requests may ask for: each chooses how many blocks of which size.
const (
	maxBaseline = 256 << 20 // bytes of a source that one calibration takes
	maxMade     = 256       // calibrations that are kept
	maxSums     = 4 << 20   // blocks of all that are kept
)

// room reports whether another answer, with a calibration of n blocks, may be kept.
func room[V any](kept map[question]V, n int) bool {
	for q := range kept {
		n += q.ask.Count
	}
	return len(kept) < maxMade && n <= maxSums
}

// Baselines are the calibrations that requests have asked for: each source is measured once for each size, and what was measured is kept. The
// zero value is ready for use, by many at once.
type Baselines struct {
	mu   sync.Mutex // guards made
	made map[question]*baseline
}

// baseline is one calibration, made or in the making.
type baseline struct {
	turn  chan struct{} // one slot: held by who measures, or has a look
	done  atomic.Pointer[guard.Calibration]
	users int // guarded by the mutex of Baselines
}

// Of returns the calibration of src, called name, and makes it where it has not been made. Those that ask at the same time wait for the one
// that measures. Errors are those of draws, or say that what is asked for can't be measured.
func (b *Baselines) Of(ctx context.Context, name string, src entropy.Source, ask Blocks) (*guard.Calibration, error) {
	if ask.Bytes < 1 || ask.Count > maxBaseline/ask.Bytes {
		return nil, &entropy.Error{
			Kind: entropy.KindConfig, Source: name, Hint: "ask for fewer or smaller blocks",
			Message: fmt.Sprintf("a calibration of %d blocks of %d bytes was asked for; it takes up to %d bytes in all", ask.Count, ask.Bytes, maxBaseline),
		}
	}
	q := question{name, ask}
	m, err := b.enter(q)
	if err != nil {
		return nil, err
	}
	defer b.leave(q, m)
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c := m.done.Load(); c != nil {
		return c, nil
	}
	c, err := guard.Measure(ctx, name, src, ask.Count, ask.Bytes)
	if err != nil {
		return nil, err
	}
	m.done.Store(c)
	return c, nil
}

// enter finds the calibration that q asks for, or makes room for it.
func (b *Baselines) enter(q question) (*baseline, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made == nil {
		b.made = map[question]*baseline{}
	}
	m := b.made[q]
	switch {
	case m != nil:
	case !room(b.made, q.ask.Count):
		return nil, &entropy.Error{
			Kind: entropy.KindConfig, Source: q.source, Hint: "ask for a size and number that was measured before; a restart forgets them all",
			Message: fmt.Sprintf("%d calibrations of different sizes were asked for, and no more are kept", len(b.made)),
		}
	default:
		m = &baseline{turn: make(chan struct{}, 1)}
		b.made[q] = m
	}
	m.users++
	return m, nil
}

// leave ends a use. One that was not made, and that nobody waits for, is forgotten.
func (b *Baselines) leave(q question, m *baseline) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.users--
	if m.users == 0 && m.done.Load() == nil {
		delete(b.made, q)
	}
}
