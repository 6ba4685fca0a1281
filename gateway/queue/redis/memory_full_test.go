package redis_test

import (
	"errors"
	"testing"

	"qr-gateway/gateway/queue"
)

// TestMemoryFull: when the server's memory is full nothing new is taken, and what is there goes on to its end, which frees memory.
func TestMemoryFull(t *testing.T) {
	s := serve(t)
	q := open(t, soon(s.url()))
	for _, id := range []string{"done", "left", "requeued", "lost"} {
		submit(t, q, id)
	}
	lost := claim(t, q) // "done" by its order; it is left alone until its lease is over
	if err := q.Heartbeat(t.Context(), lost, queue.Progress{Seq: 1}); err != nil {
		t.Fatal(err)
	}
	s.do(t, "CONFIG", "SET", "maxmemory", "1")
	if _, err := q.Submit(t.Context(), queue.Job{ID: "new", Key: "k", Model: "m"}); !errors.Is(err, queue.ErrUnavailable) {
		t.Errorf("Submit = %v, want ErrUnavailable", err)
	}
	states := watch(t, q, lost.Job.ID)
	l := claim(t, q)
	if err := q.Heartbeat(t.Context(), l, queue.Progress{Seq: 1, Cost: 2}); err != nil {
		t.Error(err)
	}
	if err := q.Settle(t.Context(), l, queue.Outcome{State: queue.StateDone, Cost: 2}); err != nil {
		t.Error(err)
	}
	if err := q.Cancel(t.Context(), "lost", "client left"); err != nil {
		t.Error(err)
	}
	until(t, states, queue.StateFailed)
	stats, err := q.Stats(t.Context())
	if err != nil || stats.Done != 1 || stats.Cancelled != 1 || stats.Failed != 1 || stats.Models["m"].Waiting != 1 {
		t.Errorf("%+v, %v", stats, err)
	}
	s.do(t, "CONFIG", "SET", "maxmemory", "0")
	submit(t, q, "new")
}
