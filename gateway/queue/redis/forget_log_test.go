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
