package worker

import "time"

// What a worker is doing.
const (
	stateIdle   = "idle"
	statePrompt = "prompt"
	stateDecode = "decode"
)

// activity is an immutable note of what a worker is doing.
type activity struct{ state, request string }

// Activity describes one worker as it is now.
type Activity struct {
	State   string // idle, prompt or decode
	Request string // id, or empty
	Used    int    // tokens in the cache, candidates not counted
	Cells   int    // tokens the cache is for
}

// Stats describes a pool as it is now.
type Stats struct {
	Workers []Activity
	Decodes uint64        // that have ended
	Tokens  uint64        // chosen
	Peeks   uint64        // candidates evaluated
	Idle    time.Duration // since a decode ended or a request began, while a worker is busy; else 0
}

// Stats reads the counters of all workers. It never waits for one.
func (p *Pool) Stats(now time.Time) Stats {
	var s Stats
	var last int64
	busy := false
	for _, w := range p.workers {
		doing := w.doing.Load()
		s.Workers = append(s.Workers, Activity{
			State: doing.state, Request: doing.request, Used: int(w.used.Load()), Cells: w.cfg.Context,
		})
		s.Decodes += w.progress.decodes.Load()
		s.Tokens += w.progress.tokens.Load()
		s.Peeks += w.progress.peeks.Load()
		last = max(last, w.progress.last.Load())
		busy = busy || doing.state != stateIdle
	}
	if busy {
		s.Idle = max(0, now.Sub(time.Unix(0, last)))
	}
	return s
}
