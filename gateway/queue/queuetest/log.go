package queuetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"qr-gateway/gateway/queue"
)

func logCases() []testCase {
	return []testCase{
		{name: "a log is read as it is written", run: logFollow},
		{name: "a log is read from where one left off", run: logResume},
		{name: "a log outlives its job", run: logLate},
		{name: "a log ends with every job", run: logEnds},
		{name: "a log takes nothing from a stale lease", run: logFenced},
		{name: "a log goes on with the next lease", run: logNextLease},
		{name: "a log is bounded in entries", limits: func(l *Limits) { l.LogEntries = 3 }, run: logBounded},
		{name: "a log is bounded in bytes", limits: func(l *Limits) { l.LogBytes = 6 }, run: logBounded},
		{name: "a log refuses what it can't hold", limits: func(l *Limits) { l.LogBytes = 6 }, run: logTooLarge},
		{name: "a reader leaves", run: logReaderLeaves},
		{name: "an unknown job has no log", run: logUnknown},
	}
}

func (b *bench) write(l queue.Lease, entries ...string) {
	b.Helper()
	data := make([][]byte, len(entries))
	for i, e := range entries {
		data[i] = []byte(e)
	}
	if err := b.q.Append(b.Context(), l, data...); err != nil {
		b.Fatalf("Append(%s): %v", l.Job.ID, err)
	}
}

func (b *bench) read(id string, seq int64) <-chan queue.Entry {
	b.Helper()
	out, err := b.q.Read(b.Context(), id, seq)
	if err != nil {
		b.Fatalf("Read(%s, %d): %v", id, seq, err)
	}
	return out
}

// words writes entries as "seq epoch data", and the last as "seq epoch state reason".
func words(entries <-chan queue.Entry, n int) []string {
	var out []string
	for range n {
		e, open := <-entries
		switch {
		case !open:
			return append(out, "closed")
		case e.End != nil:
			out = append(out, strings.TrimSpace(fmt.Sprintln(e.Seq, e.Epoch, e.End.State, e.End.Reason)))
		default:
			out = append(out, fmt.Sprint(e.Seq, " ", e.Epoch, " ", string(e.Data)))
		}
	}
	return out
}

func logFollow(b *bench) {
	b.submit("a", "k")
	entries := b.read("a", 0)
	lease := b.claim()
	b.write(lease, "x", "y")
	b.same("at once", words(entries, 2), []string{"1 1 x", "2 1 y"})
	b.write(lease, "z\x00\xff")
	b.same("later", words(entries, 1), []string{"3 1 z\x00\xff"})
	b.settle(lease, queue.StateDone, "")
	b.same("at the end", words(entries, 2), []string{"4 1 done", "closed"})
}

func logResume(b *bench) {
	b.submit("a", "k")
	lease := b.claim()
	b.write(lease, "x", "y", "z")
	entries := b.read("a", 3)
	b.same("from 3", words(entries, 1), []string{"3 1 z"})
	b.write(lease, "!")
	b.same("after", words(entries, 1), []string{"4 1 !"})
}

func logLate(b *bench) {
	b.submit("a", "k")
	lease := b.claim()
	b.write(lease, "x", "y")
	b.settle(lease, queue.StateFailed, "engine died")
	b.same("all", words(b.read("a", 1), 4), []string{"1 1 x", "2 1 y", "3 1 failed engine died", "closed"})
	b.same("the end", words(b.read("a", 3), 2), []string{"3 1 failed engine died", "closed"})
}

func logEnds(b *bench) {
	b.submit("a", "k")
	waiting := b.read("a", 0)
	b.cancel("a")
	b.same("cancelled", words(waiting, 2), []string{"1 0 cancelled client left", "closed"})
	b.submit("b", "k")
	lease := b.claim()
	b.write(lease, "x")
	b.beat(lease, 1)
	running := b.read("b", 0)
	b.silence()
	got := words(running, 3)
	b.same("lost", []any{got[0], strings.HasPrefix(got[1], "2 1 failed"), got[2]}, []any{"1 1 x", true, "closed"})
	b.submitJob(queue.Job{ID: "c", Key: "k", Model: "m", Deadline: time.Now().Add(time.Second)})
	late := b.read("c", 0)
	b.h.Advance(3 * time.Second)
	b.same("expired", strings.HasPrefix(words(late, 1)[0], "1 0 expired"), true)
}

func logFenced(b *bench) {
	b.submit("a", "k")
	old := b.claim()
	b.write(old, "x")
	b.settle(old, queue.StateQueued, "")
	for _, l := range []queue.Lease{old, {Job: queue.Job{ID: "never"}, Epoch: 1}} {
		if err := b.q.Append(b.Context(), l, []byte("y")); !errors.Is(err, queue.ErrFenced) {
			b.Errorf("Append(%s) = %v, want ErrFenced", l.Job.ID, err)
		}
	}
}

func logNextLease(b *bench) {
	b.submit("a", "k")
	first := b.claim()
	b.write(first, "x")
	b.settle(first, queue.StateQueued, "engine died")
	second := b.claim()
	b.write(second, "y")
	b.settle(second, queue.StateDone, "")
	b.same("all", words(b.read("a", 0), 4), []string{"1 1 x", "2 2 y", "3 2 done", "closed"})
}

func logBounded(b *bench) {
	b.submit("a", "k")
	lease := b.claim()
	for i := range 5 {
		b.write(lease, fmt.Sprint("e", i))
	}
	if _, err := b.q.Read(b.Context(), "a", 2); !errors.Is(err, queue.ErrTrimmed) {
		b.Errorf("Read from an entry that is dropped = %v, want ErrTrimmed", err)
	}
	b.settle(lease, queue.StateDone, "")
	b.same("the rest", words(b.read("a", 3), 5), []string{"3 1 e2", "4 1 e3", "5 1 e4", "6 1 done", "closed"})
}

func logTooLarge(b *bench) {
	b.submit("a", "k")
	lease := b.claim()
	if err := b.q.Append(b.Context(), lease, []byte("x"), []byte("much too long")); !errors.Is(err, queue.ErrTooLarge) {
		b.Errorf("Append = %v, want ErrTooLarge", err)
	}
	b.settle(lease, queue.StateDone, "")
	b.same("what was written", words(b.read("a", 0), 1), []string{"1 1 done"})
}

func logReaderLeaves(b *bench) {
	b.submit("a", "k")
	lease := b.claim()
	b.write(lease, "x", "y")
	ctx, stop := context.WithCancel(b.Context())
	entries, err := b.q.Read(ctx, "a", 0)
	if err != nil {
		b.Fatal(err)
	}
	b.same("first", words(entries, 1), []string{"1 1 x"})
	stop()
	for e := range entries {
		b.same("what was under way", string(e.Data), "y")
	}
	b.settle(lease, queue.StateDone, "")
}

func logUnknown(b *bench) {
	if _, err := b.q.Read(b.Context(), "never", 0); !errors.Is(err, queue.ErrUnknown) {
		b.Errorf("Read = %v, want ErrUnknown", err)
	}
}
