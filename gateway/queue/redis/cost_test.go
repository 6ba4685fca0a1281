package redis_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/queuetest"
	"qr-gateway/gateway/queue/redis"
)

// TestCost holds how many commands a step of a job takes, beside and within its script: what the documentation of the package says. Each step is one exchange.
func TestCost(t *testing.T) {
	s := serve(t)
	c := (&rig{url: s.url()}).config(queuetest.Wide())
	q, err := redis.Open(t.Context(), c, quiet()) // and not run, so that nobody else asks
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	db := s.client()
	defer func() { _ = db.Close() }()
	tick := func() int { // one is that of INFO
		return commands(t, db.Info(t.Context(), "commandstats").Val())
	}
	submit(t, q, "warm")
	l := claim(t, q)
	if err := q.Heartbeat(t.Context(), l, queue.Progress{Seq: 1}); err != nil {
		t.Fatal(err)
	}
	if err := q.Settle(t.Context(), l, queue.Outcome{State: queue.StateDone, Cost: 1}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		most int
		do   func()
	}{
		{"submit", 20, func() { submit(t, q, "a") }},
		{"claim", 23, func() { l = claim(t, q) }},
		{"begin", 5, func() { _ = q.Heartbeat(t.Context(), l, queue.Progress{Seq: 1}) }},
		{"heartbeat", 5, func() { _ = q.Heartbeat(t.Context(), l, queue.Progress{Seq: 2}) }},
		{"settle", 16, func() { _ = q.Settle(t.Context(), l, queue.Outcome{State: queue.StateDone, Cost: 2}) }},
	} {
		before := tick()
		step.do()
		n := tick() - before - 1
		t.Logf("%s: %d", step.name, n)
		if n < 3 || n > step.most {
			t.Errorf("%s takes %d commands; at most %d are said", step.name, n, step.most)
		}
	}
}

var calls = regexp.MustCompile(`^cmdstat_[^:]+:calls=(\d+)`)

// commands is how many commands a server has done.
func commands(t *testing.T, info string) (n int) {
	t.Helper()
	for line := range strings.Lines(info) {
		if m := calls.FindStringSubmatch(line); m != nil {
			one, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			n += one
		}
	}
	return n
}
