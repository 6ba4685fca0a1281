package guard

import (
	"sync"
	"sync/atomic"
	"time"
)

// Events hears of what an operator should see, not of every token: the first failure of an outage, one more at most each minute while
// it lasts, and its end. Calls come from draws and must not block.
type Events interface {
	Failing(e Outage)
	Recovered(e Outage)
}

// Outage is one run of failures without a good draw between.
type Outage struct {
	Source   string
	Numbers  bool // of numbers that the server makes, not of bytes
	Policy   Policy
	Reason   Reason
	Err      error         // the last
	Failures uint64        // since it began
	Lasted   time.Duration // since it began
}

const retell = time.Minute

// outage follows the draws of one kind. A good draw costs one atomic load.
type outage struct {
	on    atomic.Bool
	mu    sync.Mutex // guards what follows
	began time.Time
	told  time.Time
	state Outage
}

func (g *Guard) failing(o *outage, reason Reason, err error) {
	now := g.deps.Now()
	g.counts.remember(now, err)
	o.mu.Lock()
	first := !o.on.Load()
	if first {
		o.on.Store(true)
		o.began, o.state = now, Outage{Source: g.name, Numbers: o == &g.numbers, Policy: g.cfg.Policy}
	}
	o.state.Reason, o.state.Err = reason, err
	o.state.Failures++
	o.state.Lasted = now.Sub(o.began)
	tell := first || now.Sub(o.told) >= retell
	if tell {
		o.told = now
	}
	e := o.state
	o.mu.Unlock()
	if tell && g.deps.Events != nil {
		g.deps.Events.Failing(e)
	}
}

func (g *Guard) recovered(o *outage) {
	if !o.on.Load() {
		return
	}
	o.mu.Lock()
	was := o.on.Swap(false)
	e := o.state
	e.Lasted = g.deps.Now().Sub(o.began)
	o.mu.Unlock()
	if was && g.deps.Events != nil {
		g.deps.Events.Recovered(e)
	}
}
