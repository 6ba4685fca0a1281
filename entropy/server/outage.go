package server

import (
	"log/slog"
	"sync"
	"time"
)

// retell is how often an outage of the source is told again.
const retell = time.Minute

// outage logs failures of the source without a flood: the first, then a count once a minute, then that it is over.
type outage struct {
	log *slog.Logger
	now func() time.Time

	mu          sync.Mutex // guards all below
	began, told time.Time
	failures    int
}

// note takes the outcome of a draw.
func (o *outage) note(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch now := o.now(); {
	case err == nil && o.failures > 0:
		o.log.Warn("entropy source recovered", "failures", o.failures, "after", now.Sub(o.began).Round(time.Millisecond))
		o.failures = 0
	case err == nil:
	case o.failures == 0:
		o.began, o.told, o.failures = now, now, 1
		o.log.Error("entropy source fails", "err", err)
	default:
		o.failures++
		if now.Sub(o.told) >= retell {
			o.told = now
			o.log.Error("entropy source still fails", "failures", o.failures, "for", now.Sub(o.began).Round(time.Second), "err", err)
		}
	}
}
