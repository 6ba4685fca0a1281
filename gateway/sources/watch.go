package sources

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"qr-gateway/entropy/grpc"
	"qr-gateway/entropy/grpc/breaker"
	"qr-gateway/entropy/guard"
)

// watch hears of transitions. It logs them, under the names that qr-sampler gives such events, and remembers how each source is.
type watch struct {
	log *slog.Logger
	now func() time.Time

	mu       sync.Mutex // guards the rest
	how      map[string]condition
	breakers map[string]breaker.State // of sources whose breaker has changed
}

type condition struct {
	bytes, numbers bool // failing
	changed        time.Time
}

func newWatch(d Deps) *watch {
	return &watch{log: d.Log, now: d.Now, how: map[string]condition{}, breakers: map[string]breaker.State{}}
}

// of is how a source is, and since when.
func (w *watch) of(name string) (degraded bool, changed time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.how[name]
	return c.bytes || c.numbers, c.changed
}

// breaker is the state of a source's breaker; empty where it has never changed.
func (w *watch) breaker(name string) breaker.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.breakers[name]
}

// Drawn implements [grpc.Observer]. The guard in front of the source counts.
func (w *watch) Drawn(string, grpc.Report) {}

// Changed implements [grpc.Observer]. The trials of an outage are no news.
func (w *watch) Changed(source string, e breaker.Event) {
	w.mu.Lock()
	w.breakers[source] = e.To
	w.mu.Unlock()
	level := slog.LevelDebug
	if e.From == breaker.Closed || e.To == breaker.Closed {
		level = slog.LevelInfo
	}
	w.log.Log(context.Background(), level, "breaker of an entropy source", "event", "entropy.breaker", "entropy_source", source, "from", string(e.From), "to", string(e.To))
}

// set notes an end of a run of good or bad draws, and reports whether it is one.
func (w *watch) set(e guard.Outage, failing bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.how[e.Source]
	was := &c.bytes
	if e.Numbers {
		was = &c.numbers
	}
	changed := *was != failing
	if changed {
		*was, c.changed = failing, w.now()
		w.how[e.Source] = c
	}
	return changed
}

// Failing implements [guard.Events]: at the first failure of an outage, and now and then while it lasts.
func (w *watch) Failing(e guard.Outage) {
	if w.set(e, true) {
		w.log.Warn("entropy source is failing", append(attrs("entropy.degraded", e), "error", e.Err.Error())...)
		return
	}
	w.log.Error("entropy source is still failing", append(attrs("entropy.degraded.alert", e), "error", e.Err.Error())...)
}

// Recovered implements [guard.Events].
func (w *watch) Recovered(e guard.Outage) {
	w.set(e, false)
	w.log.Warn("entropy source is back", attrs("entropy.recovered", e)...)
}

func attrs(event string, e guard.Outage) []any {
	what := "bytes"
	if e.Numbers {
		what = "numbers"
	}
	return []any{
		"event", event, "entropy_source", e.Source, "of", what, "policy", string(e.Policy), "reason", e.Reason.String(),
		"failures", e.Failures, "lasted", e.Lasted.Round(time.Millisecond).String(),
	}
}
