package redis_test

import (
	"testing"
	"time"

	"qr-gateway/gateway/queue"
)

// next takes an entry, or false where the log is closed.
func next(t *testing.T, entries <-chan queue.Entry) (queue.Entry, bool) {
	t.Helper()
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	select {
	case e, open := <-entries:
		return e, open
	case <-limit.C:
		t.Fatal("nothing comes")
		return queue.Entry{}, false
	}
}

// TestForgetsLog: the server is emptied while a log is read, and its run goes on. The reader must not take the new log for the rest of the old one.
func TestForgetsLog(t *testing.T) {
	for name, more := range map[string]int{"shorter": 1, "longer": 6} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			c := soon(s.url())
			c.Poll = 100 * time.Millisecond
			q := open(t, c)
			submit(t, q, "a")
			l := claim(t, q)
			if err := q.Heartbeat(t.Context(), l, queue.Progress{Seq: 1}); err != nil {
				t.Fatal(err)
			}
			write := func(n int) {
				t.Helper()
				for range n {
					if err := q.Append(t.Context(), l, []byte("entry")); err != nil {
						t.Fatal(err)
					}
				}
			}
			write(3)
			entries, err := q.Read(t.Context(), "a", 1)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				next(t, entries)
			}
			s.do(t, "FLUSHALL")
			write(more) // before anybody looks
			for e, open := next(t, entries); open; e, open = next(t, entries) {
				t.Fatalf("entry %d comes behind those of a log that was forgotten", e.Seq)
			}
		})
	}
}

// TestForgetsKey: a request with a key was sent again before the run of the first was known again. From then on the key is that of the second: of the
// first part of the answer is lost.
func TestForgetsKey(t *testing.T) {
	s := serve(t)
	q := open(t, soon(s.url()))
	send := func(id, want string) {
		t.Helper()
		ticket, err := q.Submit(t.Context(), queue.Job{ID: id, Key: "k", Model: "m", IdempotencyKey: "once", Payload: []byte("p")})
		if err != nil || ticket.ID != want {
			t.Errorf("%s is taken as %s, %v; want %s", id, ticket.ID, err, want)
		}
	}
	send("a", "a")
	l := claim(t, q)
	beat := func(seq int64) {
		t.Helper()
		if err := q.Heartbeat(t.Context(), l, queue.Progress{Seq: seq}); err != nil {
			t.Fatal(err)
		}
	}
	beat(1)
	s.do(t, "FLUSHALL")
	send("b", "b")
	beat(2)
	send("c", "b")
	if err := q.Settle(t.Context(), l, queue.Outcome{State: queue.StateDone}); err != nil {
		t.Fatal(err)
	}
	db := s.client()
	defer func() { _ = db.Close() }()
	if left, err := db.TTL(t.Context(), q.Base()+":rep:1:k:once").Result(); err != nil || left != -1 {
		t.Errorf("the key of a live request is forgotten in %s, %v", left, err)
	}
	send("d", "b")
}
