package redis_test

import (
	"testing"

	"qr-gateway/gateway/queue"
)

// TestAnyText has a job whose texts hold the bytes that stand between those of a record.
func TestAnyText(t *testing.T) {
	s := serve(t)
	q := open(t, soon(s.url()))
	job := queue.Job{
		ID: "a\x01", Key: "k\x01\x02a", Model: "m\x02\x01", IdempotencyKey: "i\x01", Owner: "o\x01", Cost: 3, Weight: 2, Class: queue.ClassTask,
		Prefixes: []uint64{1, 1 << 63}, Payload: []byte("p\x01"),
	}
	if _, err := q.Submit(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	states := watch(t, q, job.ID)
	if stats, err := q.Stats(t.Context()); err != nil || stats.Models[job.Model].Waiting != 1 {
		t.Errorf("%+v, %v", stats.Models, err)
	}
	l, err := q.Claim(t.Context(), queue.Offer{Node: "n\x01", Models: []string{"x", job.Model}, Least: queue.ClassTask})
	if err != nil {
		t.Fatal(err)
	}
	if g := l.Job; g.ID != job.ID || g.Key != job.Key || g.Model != job.Model || g.IdempotencyKey != job.IdempotencyKey || g.Owner != job.Owner {
		t.Errorf("claimed %+v", g)
	}
	if err := q.Settle(t.Context(), l, queue.Outcome{State: queue.StateFailed, Reason: "r\x01\x02b"}); err != nil {
		t.Fatal(err)
	}
	if end := until(t, states, queue.StateFailed); end.Reason != "r\x01\x02b" {
		t.Errorf("reason is %q", end.Reason)
	}
}
