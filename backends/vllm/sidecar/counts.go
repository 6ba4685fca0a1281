package sidecar

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Stats is what a sidecar has done and holds. All but Sessions, Live and Kept only grow.
type Stats struct {
	Sessions   int    // plugins that are connected
	Live       int    // requests that have a plugin
	Kept       int    // requests, with those that wait to be followed, shown again or forgotten
	Steps      uint64 // frames of rows
	Rows       uint64 // answered
	Tokens     uint64 // chosen
	Whole      uint64 // rows that were asked for whole
	Voids      uint64 // draws whose row wasn't the one that counted
	Refusals   uint64 // connections refused or ended for what they sent
	Rejected   uint64 // requests that can't be served: bad parameters, a rid that is taken or finished
	Late       uint64 // rows whose number wasn't there at the step's deadline
	Native     uint64 // of these, rows that were left to vLLM
	Failed     uint64 // rows that ended their answer by an error
	Mismatched uint64 // tokens that a plugin reported to be others than were chosen
}

type counts struct {
	steps, rows, tokens, whole, voids, refusals, rejected, late, native, failed, mismatched atomic.Uint64
}

func (c *counts) stats() Stats {
	return Stats{
		Steps: c.steps.Load(), Rows: c.rows.Load(), Tokens: c.tokens.Load(), Whole: c.whole.Load(), Voids: c.voids.Load(),
		Refusals: c.refusals.Load(), Rejected: c.rejected.Load(), Late: c.late.Load(), Native: c.native.Load(), Failed: c.failed.Load(), Mismatched: c.mismatched.Load(),
	}
}

// slowSources are those whose second choice has been missed.
type slowSources struct {
	mu   sync.Mutex // guards told
	told map[string]bool
}

// tell says once of each source that its time limit keeps its second choice from taking over.
func (s *slowSources) tell(log *slog.Logger, name string, deadline time.Duration) {
	s.mu.Lock()
	known := s.told[name]
	if s.told == nil {
		s.told = map[string]bool{}
	}
	s.told[name] = true
	s.mu.Unlock()
	if !known {
		log.Warn("an entropy source may take longer than a step, so its second choice comes too late", "source", name, "sidecar.deadline", deadline,
			"hint", "set the source's timeout, in entropy.sources, lower than sidecar.deadline, or raise that one")
	}
}
