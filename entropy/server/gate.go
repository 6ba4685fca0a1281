package server

import "sync"

// gate counts the requests under way and lets no more in once it is closed.
type gate struct {
	mu     sync.Mutex // guards all below
	n      int
	closed bool
	idle   chan struct{} // closed when the gate is, and nothing is under way
}

func newGate() *gate { return &gate{idle: make(chan struct{})} }

// enter reports whether a request may go ahead; leave is called at its end.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

// leave reports whether the gate is open still.
func (g *gate) leave() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.closed && g.n == 0 {
		close(g.idle)
	}
	return !g.closed
}

// close is called once.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.n == 0 {
		close(g.idle)
	}
	return g.idle
}
