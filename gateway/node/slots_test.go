package node_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// gate holds the jobs of a model at their first step until they are let go.
type gate struct {
	mu      sync.Mutex // guards both
	started []string
	waiting map[string]chan struct{}
}

func (g *gate) hook(ctx context.Context, id string, step int) error {
	if step > 0 {
		return nil
	}
	let := make(chan struct{})
	g.mu.Lock()
	g.started = append(g.started, id)
	g.waiting[id] = let
	g.mu.Unlock()
	select {
	case <-let:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) let(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.waiting[id])
}

func (g *gate) running() []string {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.started)
}

func (r *rig) doTask(id string) *call { return r.doWith(&call{id: id, task: true}, "m", 8) }

// TestTasksLeaveAWorker: the last free worker is for what people wait for, and a task starts as soon as it may.
func TestTasksLeaveAWorker(t *testing.T) {
	g := &gate{waiting: map[string]chan struct{}{}}
	bench(t, 2, one(99, g.hook), func(r *rig) {
		first := r.doTask("t1")
		synctest.Wait()
		second := r.doTask("t2")
		if got := g.running(); !slices.Equal(got, []string{"t1"}) {
			t.Fatalf("running: %v, want one task on two workers", got)
		}
		chat := r.do("a")
		if got := g.running(); !slices.Equal(got, []string{"t1", "a"}) {
			t.Fatalf("running: %v, want the chat beside the task", got)
		}
		g.let("t1")
		r.right(first)
		if got := g.running(); len(got) != 2 {
			t.Fatalf("running: %v, want no second task beside a chat on two workers", got)
		}
		g.let("a")
		r.right(chat)
		if got := g.running(); !slices.Equal(got, []string{"t1", "a", "t2"}) {
			t.Fatalf("running: %v, want the second task when both workers are free", got)
		}
		g.let("t2")
		r.right(second)
	})
}

// TestOneWorkerTakesTasks: a model with one worker has none to keep.
func TestOneWorkerTakesTasks(t *testing.T) {
	g := &gate{waiting: map[string]chan struct{}{}}
	bench(t, 1, one(99, g.hook), func(r *rig) {
		task := r.doTask("t")
		if got := g.running(); !slices.Equal(got, []string{"t"}) {
			t.Fatalf("running: %v", got)
		}
		g.let("t")
		r.right(task)
	})
}
