package guard

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"qr-gateway/entropy"
)

// counts are written by every draw without a lock.
type counts struct {
	draws, bytes   atomic.Uint64
	numbers        atomic.Uint64
	discarded      atomic.Uint64 // blocks
	discardedBytes atomic.Uint64
	fallbacks      [nReasons]atomic.Uint64
	alarms         [nReasons]atomic.Uint64
	errors         [nReasons]atomic.Uint64
	flags          [nFlags]atomic.Uint64
	latency        histogram
	mu             sync.Mutex // guards the two below
	lastErr        error
	lastAt         time.Time
}

const nFlags = 7

func (c *counts) discard(n int) {
	c.discarded.Add(1)
	c.discardedBytes.Add(uint64(n))
}

func (c *counts) flag(f entropy.Flags) {
	for ; f != 0; f &= f - 1 {
		if i := bits.TrailingZeros32(uint32(f)); i < nFlags {
			c.flags[i].Add(1)
		}
	}
}

func (c *counts) remember(at time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastErr, c.lastAt = err, at
}

// histogram has buckets that double from 8 us; the last takes the rest.
type histogram struct {
	buckets [nBuckets]atomic.Uint64
	nanos   atomic.Uint64
}

const (
	nBuckets    = 24
	firstBucket = 8 * time.Microsecond
)

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	i := bits.Len64(uint64((d - 1) / firstBucket))
	if d == 0 {
		i = 0
	}
	h.buckets[min(i, nBuckets-1)].Add(1)
	h.nanos.Add(uint64(d))
}

// Histogram is how long draws took.
type Histogram struct {
	UpperSeconds []float64 `json:"upper_seconds"` // of each bucket but the last, inclusive
	Counts       []uint64  `json:"counts"`        // not cumulative, one more than the bounds
	SumSeconds   float64   `json:"sum_seconds"`
}

func (h *histogram) read() Histogram {
	out := Histogram{SumSeconds: time.Duration(h.nanos.Load()).Seconds()}
	for i := range h.buckets {
		if i < nBuckets-1 {
			out.UpperSeconds = append(out.UpperSeconds, (firstBucket << i).Seconds())
		}
		out.Counts = append(out.Counts, h.buckets[i].Load())
	}
	return out
}

// State is a snapshot of a source for status pages and metrics. Maps hold what is not zero.
type State struct {
	Source         string            `json:"source"`
	Policy         Policy            `json:"policy"`
	Mode           Mode              `json:"mode"`
	Device         string            `json:"device,omitempty"`
	Class          entropy.Class     `json:"class,omitempty"`
	Draws          uint64            `json:"draws"`
	Bytes          uint64            `json:"bytes"`
	Numbers        uint64            `json:"numbers"`
	Discarded      uint64            `json:"discarded"` // blocks that arrived and were not used, start-up tests included
	DiscardedBytes uint64            `json:"discarded_bytes"`
	Fallbacks      map[string]uint64 `json:"fallbacks,omitempty"` // by reason
	Alarms         map[string]uint64 `json:"alarms,omitempty"`
	Errors         map[string]uint64 `json:"errors,omitempty"`
	Flags          map[string]uint64 `json:"flags,omitempty"`
	Latency        Histogram         `json:"latency"`
	LastError      string            `json:"last_error,omitempty"`
	LastErrorAt    time.Time         `json:"last_error_at,omitzero"`
	AlarmedSince   time.Time         `json:"alarmed_since,omitzero"`
	RetryAt        time.Time         `json:"retry_at,omitzero"`
	Calibration    string            `json:"calibration,omitempty"` // hash of the baseline
}

// State reads the counters. They are read one by one while draws go on.
func (g *Guard) State() State {
	c := &g.counts
	s := State{
		Source: g.name, Policy: g.cfg.Policy, Mode: ModeOK,
		Draws: c.draws.Load(), Bytes: c.bytes.Load(), Numbers: c.numbers.Load(),
		Discarded: c.discarded.Load(), DiscardedBytes: c.discardedBytes.Load(),
		Fallbacks: named(c.fallbacks[:], reasonNames[:]), Alarms: named(c.alarms[:], reasonNames[:]),
		Errors: named(c.errors[:], reasonNames[:]), Flags: named(c.flags[:], entropy.FlagNames()),
		Latency: c.latency.read(),
	}
	if caps := g.caps.Load(); caps != nil {
		s.Device, s.Class = caps.Device, caps.Class
	}
	if b := g.Calibration(); b != nil {
		s.Calibration = b.Hash
	}
	c.mu.Lock()
	if c.lastErr != nil {
		s.LastError, s.LastErrorAt = c.lastErr.Error(), c.lastAt
	}
	c.mu.Unlock()
	g.mode(&s)
	return s
}

func (g *Guard) mode(s *State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.alarm.out() {
		s.Mode, s.AlarmedSince, s.RetryAt = g.alarm.mode, g.alarm.since, g.alarm.until
	}
	if g.closed.Load() {
		s.Mode = ModeClosed
	}
}

func named(values []atomic.Uint64, names []string) map[string]uint64 {
	var out map[string]uint64
	for i := range values {
		if n := values[i].Load(); n > 0 {
			if out == nil {
				out = map[string]uint64{}
			}
			out[names[i]] = n
		}
	}
	return out
}
