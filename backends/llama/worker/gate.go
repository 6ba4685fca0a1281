package worker

import (
	"context"
	"slices"
	"sync"
)

// Gate lets one of its members at a time through, in the order in which they came. On a CPU one decode uses every core,
// and two at once are far slower than two in turn.
type Gate struct {
	mu    sync.Mutex // guards busy and queue
	busy  bool
	queue []*Turn
}

// Turn is one member's place at a gate. It belongs to one goroutine. The nil Turn never waits.
type Turn struct {
	gate    *Gate
	granted chan struct{} // one slot: a grant never waits for its receiver
}

// Join adds a member. The nil Gate has members that never wait.
func (g *Gate) Join() *Turn {
	if g == nil {
		return nil
	}
	return &Turn{gate: g, granted: make(chan struct{}, 1)}
}

// Take waits for this member's turn, or for the end of ctx.
func (t *Turn) Take(ctx context.Context) error {
	if err := ctx.Err(); err != nil || t == nil {
		return err
	}
	if t.gate.enter(t) {
		return nil
	}
	select {
	case <-t.granted:
		return nil
	case <-ctx.Done():
		t.gate.leave(t)
		return ctx.Err()
	}
}

// Give lets the next one through. It follows a Take without error.
func (t *Turn) Give() {
	if t != nil {
		t.gate.pass()
	}
}

// enter takes the free gate, or queues t and reports false.
func (g *Gate) enter(t *Turn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.busy {
		g.busy = true
		return true
	}
	g.queue = append(g.queue, t)
	return false
}

// pass grants the gate to the first in the queue.
func (g *Gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) == 0 {
		g.busy = false
		return
	}
	next := g.queue[0]
	g.queue = slices.Delete(g.queue, 0, 1)
	next.granted <- struct{}{}
}

// leave takes t out of the queue. If the grant was faster, it is passed on.
func (g *Gate) leave(t *Turn) {
	g.mu.Lock()
	i := slices.Index(g.queue, t)
	if i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
	}
	g.mu.Unlock()
	if i < 0 {
		<-t.granted
		g.pass()
	}
}
