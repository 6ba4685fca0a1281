package worker

import (
	"sync"
	"time"
)

// Cores decides how many threads a decode uses. llama.cpp's threads wait for each other many times in every decode, and
// they spin: beside another busy process a decode on all cores can take ten times as long, one on fewer cores hardly
// longer. So when decodes of one token get much slower than they were, one thread is tried, and the better of the two is
// kept; from one thread, all are tried again now and then, the more rarely the more often it was in vain.
//
// It is shared by the workers of an engine and safe for concurrent use.
type Cores struct {
	mu       sync.Mutex // guards the rest
	all      int
	arms     [2]arm // all threads; one thread
	using    int    // index of arms
	trial    int    // decodes left of a trial of the other arm
	quiet    int    // decodes since the last trial
	patience int    // decodes between trials
}

// arm is a number of threads and what decodes of one token took with it.
type arm struct {
	recent time.Duration // moving average
	floor  time.Duration // the quickest of late; it rises slowly, as contexts grow
}

const (
	disturbed   = 1.6 // times its floor: a decode is slow because of something else
	trialLength = 4   // decodes; the first one wakes threads and is not counted
	minPatience = 48
	maxPatience = 1024
)

// NewCores makes the decision for up to all threads.
func NewCores(all int) *Cores { return &Cores{all: all, patience: minPatience} }

// Threads is the number for the next decode, of so many tokens. A piece of a prompt always gets all: it computes for long between two
// meetings of its threads, and a trial that happens to be under way would make it many times slower.
func (c *Cores) Threads(tokens int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tokens > MaxGroup || c.active() == 0 {
		return c.all
	}
	return 1
}

// active is the arm that the next decode uses.
func (c *Cores) active() int {
	if c.trial > 0 {
		return 1 - c.using
	}
	return c.using
}

// Note takes what a decode of tokens took with so many threads. Only decodes of one token say something: others differ in size.
func (c *Cores) Note(threads, tokens int, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tokens != 1 || c.all == 1 || took <= 0 {
		return
	}
	i := 0
	if threads == 1 {
		i = 1
	}
	if c.trial == trialLength { // the first decode of a trial
		c.arms[i] = arm{floor: c.arms[i].floor}
		c.trial--
		return
	}
	c.arms[i].note(took)
	if c.trial > 0 {
		c.tried()
		return
	}
	c.quiet++
	if c.due() {
		c.trial, c.quiet = trialLength, 0
	}
}

// due reports whether the other arm should be tried: from all threads when they got slow, from one thread every now and then.
func (c *Cores) due() bool {
	now := &c.arms[c.using]
	if c.using == 0 {
		return c.quiet >= minPatience/8 && float64(now.recent) > disturbed*float64(now.floor)
	}
	return c.quiet >= c.patience
}

// tried counts a decode of a trial and, after the last one, keeps the better arm.
func (c *Cores) tried() {
	if c.trial--; c.trial > 0 {
		return
	}
	other := 1 - c.using
	better := c.arms[other].recent < c.arms[c.using].recent
	switch {
	case better:
		c.using, c.patience = other, minPatience
	case c.using == 1:
		c.patience = min(2*c.patience, maxPatience)
	default:
		c.arms[0].floor = c.arms[0].recent // all threads are slow now, and still the best there is
	}
}

func (a *arm) note(took time.Duration) {
	if a.recent == 0 {
		a.recent = took
	}
	a.recent += (took - a.recent) / 4
	if a.floor == 0 || took < a.floor {
		a.floor = took
	}
	a.floor += a.floor / 512
}
