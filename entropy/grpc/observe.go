package grpc

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc/breaker"
)

// Observer hears of every draw and every change of a breaker. Its methods are called by those who draw and must be quick; Changed is
// called with the breaker locked and must not ask the source anything.
type Observer interface {
	Drawn(source string, r Report)
	Changed(source string, e breaker.Event)
}

// Report is how one request to a server ended, with its retries.
type Report struct {
	Kind     entropy.Kind // empty: it succeeded, or its caller went away
	Latency  time.Duration
	Attempts int  // 0: nothing was sent
	Trial    bool // it decided a half-open breaker
	Err      error
}

type discard struct{}

func (discard) Drawn(string, Report)          {}
func (discard) Changed(string, breaker.Event) {}

// quiet is how often an outage is told again.
const quiet = time.Minute

// LogObserver writes what happens to a log without a flood: the first failure of an outage, then a count once a minute, then that it is
// over. Use one per log.
type LogObserver struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex // guards outages
	outages map[string]*outage
}

type outage struct {
	began, told time.Time
	kinds       map[entropy.Kind]int
	total       int
}

// NewLogObserver returns an observer that writes to log. now may be nil.
func NewLogObserver(log *slog.Logger, now func() time.Time) *LogObserver {
	if now == nil {
		now = time.Now
	}
	return &LogObserver{log: log, now: now, outages: map[string]*outage{}}
}

// Drawn implements [Observer].
func (o *LogObserver) Drawn(source string, r Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, out := o.now(), o.outages[source]
	switch {
	case r.Err == nil && out != nil:
		delete(o.outages, source)
		o.log.Warn("entropy source recovered", "source", source, "failures", out.total, "after", now.Sub(out.began).Round(time.Millisecond))
	case r.Err == nil || r.Kind == "":
	case out == nil:
		o.outages[source] = &outage{now, now, map[entropy.Kind]int{r.Kind: 1}, 1}
		o.log.Error("entropy source fails", "source", source, "kind", r.Kind, "err", r.Err)
	default:
		out.total++
		out.kinds[r.Kind]++
		if now.Sub(out.told) >= quiet {
			out.told = now
			o.log.Error("entropy source still fails", "source", source, "failures", out.total, "kinds", out.kinds, "for", now.Sub(out.began).Round(time.Second), "err", r.Err)
		}
	}
}

// Changed implements [Observer].
func (o *LogObserver) Changed(source string, e breaker.Event) {
	level := slog.LevelInfo
	if e.To == breaker.Open && e.From == breaker.Closed {
		level = slog.LevelWarn
	}
	if e.From == breaker.HalfOpen && e.To == breaker.Open || e.To == breaker.HalfOpen { // repeats with each trial of an outage
		level = slog.LevelDebug
	}
	o.log.Log(context.Background(), level, "breaker changed", "source", source, "from", e.From, "to", e.To, "failures", e.Failures, "until", e.Until, "forced", e.Forced)
}
