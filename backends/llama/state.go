package llama

import (
	"math"
	"time"

	pb "qr-gateway/backends/llama/enginepb"
)

// state is where the supervisor is; design.md has the transitions.
type state string

const (
	stateStarting state = "starting" // the process is coming up
	stateLoading  state = "loading"  // the model is being loaded and tried
	stateReady    state = "ready"    // a token has been decoded
	stateBackoff  state = "waiting to restart"
	stateFailed   state = "failed"   // for good
	stateStopping state = "stopping" // Run's context has ended
)

// snapshot is what the supervisor knows. It is never changed; changed is closed when the next one is there.
type snapshot struct {
	state   state
	reason  string // why not ready, or why the engine before this one ended
	client  pb.EngineServiceClient
	model   *pb.LoadResponse // of the latest engine that loaded
	changed chan struct{}
}

// enter publishes a new state. Only Run's goroutine calls it.
func (b *Backend) enter(next snapshot) {
	old := b.now.Load()
	if next.model == nil {
		next.model = old.model
	}
	next.changed = make(chan struct{})
	b.now.Store(&next)
	close(old.changed)
	b.log.Debug("engine state", "from", old.state, "to", next.state, "reason", next.reason)
}

// backoff says how long to wait before the next start.
type backoff struct {
	least, most time.Duration
	healthy     time.Duration
	failures    int
}

// next takes how long the engine lived, and a number in [0,1) that spreads the restarts of several engines over half of
// the wait.
func (o *backoff) next(lived time.Duration, jitter float64) time.Duration {
	if lived >= o.healthy {
		o.failures = 0
	}
	wait := min(float64(o.least)*math.Pow(2, float64(o.failures)), float64(o.most))
	o.failures++
	return time.Duration(wait * (0.5 + jitter/2))
}

// watchdog decides from the engine's own account whether it is stuck.
type watchdog struct {
	limit time.Duration
	good  time.Time // when it last answered
}

// stuck takes an answer to Stats, nil if there was none in time.
func (d *watchdog) stuck(now time.Time, st *pb.StatsResponse) bool {
	if st == nil {
		return now.Sub(d.good) >= d.limit
	}
	d.good = now
	return time.Duration(st.IdleMs)*time.Millisecond >= d.limit
}

// interval is how often the watchdog looks: every second, more often if the limit is short.
func (d *watchdog) interval() time.Duration { return min(time.Second, d.limit/4) }
