package memory

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/gateway/queue"
)

// TestLaws drives the queue with random operations and checks its books after each one.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := DefaultConfig()
		c.Jobs, c.JobsPerKey, c.Tokens, c.TokensPerKey, c.Bytes, c.BytesPerKey = 12, 5, 200, 90, 80, 30
		q, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		d := &driver{q: q, ended: map[string]queue.State{}}
		t.Repeat(map[string]func(*rapid.T){
			"submit":   func(t *rapid.T) { several(t, d.submit) },
			"claim":    func(t *rapid.T) { several(t, d.claim) },
			"settle":   d.settle,
			"progress": d.progress,
			"cancel":   d.cancel,
			"stale":    d.stale,
			"":         d.check,
		})
	})
}

// several does the same a few times, so that the lines fill up.
func several(t *rapid.T, f func(*rapid.T)) {
	for range rapid.IntRange(1, 6).Draw(t, "times") {
		f(t)
	}
}

// driver plays clients and nodes.
type driver struct {
	q      *Queue
	n      int
	leases []queue.Lease          // believed good
	old    []queue.Lease          // settled or cancelled
	ended  map[string]queue.State // terminal states as first seen
}

func (d *driver) submit(t *rapid.T) {
	d.n++
	job := queue.Job{
		ID: fmt.Sprint(d.n), Key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"),
		Model: rapid.SampledFrom([]string{"x", "x", "y"}).Draw(t, "model"), Class: queue.Class(rapid.IntRange(0, queue.Classes-1).Draw(t, "class")),
		Weight: rapid.SampledFrom([]float64{0, 0.5, 2}).Draw(t, "weight"), Payload: make([]byte, rapid.IntRange(0, 9).Draw(t, "bytes")), Cost: rapid.IntRange(0, 20).Draw(t, "cost"),
	}
	ticket, err := d.q.Submit(t.Context(), job)
	if err != nil && !errors.Is(err, queue.ErrFull) {
		t.Fatalf("Submit: %v", err)
	}
	if err == nil && ticket.Position != d.place(job) {
		t.Fatalf("ticket says %d, the line says %d", ticket.Position, d.place(job))
	}
}

// place is a job's position by walking the whole line.
func (d *driver) place(job queue.Job) int {
	at := 0
	d.q.lines[placeOf(&job)].each(func(position int, r *record) {
		if r.job.ID == job.ID {
			at = position
		}
	})
	for class := range job.Class {
		if l := d.q.lines[place{job.Model, class}]; l != nil && at > 0 {
			at += l.waiting.jobs
		}
	}
	return at
}

// claim takes a job if one waits, and checks that it is the one that the line showed as next.
func (d *driver) claim(t *rapid.T) {
	model := rapid.SampledFrom([]string{"x", "x", "y"}).Draw(t, "model")
	least := queue.Class(rapid.IntRange(0, queue.Classes-1).Draw(t, "least"))
	want := ""
	for class := queue.ClassChat; class <= least && want == ""; class++ {
		if l := d.q.lines[place{model, class}]; l != nil {
			l.each(func(position int, r *record) {
				if position == 1 {
					want = r.job.ID
				}
			})
		}
	}
	if want == "" {
		return
	}
	lease, err := d.q.Claim(t.Context(), queue.Offer{Node: "n", Models: []string{model}, Least: least})
	if err != nil || lease.Job.ID != want {
		t.Fatalf("Claim = job %s, %v; the line shows %s first", lease.Job.ID, err, want)
	}
	d.leases = append(d.leases, lease)
}

// take removes a lease from those believed good.
func (d *driver) take(t *rapid.T) queue.Lease {
	if len(d.leases) == 0 {
		t.Skip("nothing runs")
	}
	i := rapid.IntRange(0, len(d.leases)-1).Draw(t, "lease")
	lease := d.leases[i]
	d.leases = slices.Delete(d.leases, i, i+1)
	return lease
}

func (d *driver) settle(t *rapid.T) {
	lease := d.take(t)
	state := rapid.SampledFrom([]queue.State{queue.StateDone, queue.StateFailed, queue.StateQueued}).Draw(t, "state")
	reason := rapid.SampledFrom([]string{"", "engine died"}).Draw(t, "reason")
	err := d.q.Settle(t.Context(), lease, queue.Outcome{State: state, Reason: reason, Cost: rapid.IntRange(0, 30).Draw(t, "cost")})
	if err != nil && d.q.records[lease.Job.ID].state == queue.StateStreaming && state == queue.StateQueued {
		d.leases = append(d.leases, lease) // refused, so the lease is still good
		return
	}
	if err != nil {
		t.Fatalf("Settle(%s): %v", state, err)
	}
	d.old = append(d.old, lease)
}

func (d *driver) progress(t *rapid.T) {
	lease := d.take(t)
	if err := d.q.Heartbeat(t.Context(), lease, queue.Progress{Seq: rapid.Int64Range(0, 3).Draw(t, "seq")}); err != nil {
		t.Fatalf("Heartbeat: %v", err)
	}
	d.leases = append(d.leases, lease)
}

func (d *driver) cancel(t *rapid.T) {
	id := fmt.Sprint(rapid.IntRange(1, max(1, d.n)).Draw(t, "job"))
	if err := d.q.Cancel(t.Context(), id, "test"); err != nil && !errors.Is(err, queue.ErrUnknown) {
		t.Fatalf("Cancel: %v", err)
	}
	for i, l := range d.leases {
		if l.Job.ID == id {
			d.leases = slices.Delete(d.leases, i, i+1)
			d.old = append(d.old, l)
			return
		}
	}
}

// stale uses a lease that is over.
func (d *driver) stale(t *rapid.T) {
	if len(d.old) == 0 {
		t.Skip("no lease is over")
	}
	lease := rapid.SampledFrom(d.old).Draw(t, "lease")
	if err := d.q.Settle(t.Context(), lease, queue.Outcome{State: queue.StateDone}); !errors.Is(err, queue.ErrFenced) {
		t.Fatalf("Settle with a lease that is over = %v, want ErrFenced", err)
	}
}

// check holds what must be true between any two operations.
func (d *driver) check(t *rapid.T) {
	q := d.q
	var all usage
	keys := map[string]usage{}
	for model, l := range q.lines {
		var line usage
		l.each(func(_ int, r *record) {
			line.add(&r.job, 1)
			k := keys[r.job.Key]
			k.add(&r.job, 1)
			keys[r.job.Key] = k
			if r.state != queue.StateQueued {
				t.Fatalf("job %s is in line and %s", r.job.ID, r.state)
			}
		})
		if line != l.waiting {
			t.Fatalf("line %v holds %+v and counts %+v", model, line, l.waiting)
		}
		all.jobs, all.tokens, all.bytes = all.jobs+line.jobs, all.tokens+line.tokens, all.bytes+line.bytes
		d.checkLine(t, l)
	}
	if all != q.waiting || len(keys) != len(q.keys) {
		t.Fatalf("the lines hold %+v of %d keys; counted are %+v of %d", all, len(keys), q.waiting, len(q.keys))
	}
	for key, u := range q.keys {
		if *u != keys[key] {
			t.Fatalf("key %s has %+v and counts %+v", key, keys[key], *u)
		}
	}
	if len(q.running) != len(d.leases) {
		t.Fatalf("%d jobs run, %d leases are good", len(q.running), len(d.leases))
	}
	d.checkEnds(t)
}

// checkLine holds that the turns are in order and nobody is behind virtual time.
func (d *driver) checkLine(t *rapid.T, l *line) {
	if len(l.turns) != len(l.lanes) || l.ages.Len() != l.waiting.jobs || !slices.IsSortedFunc(l.turns, byTurn) {
		t.Fatalf("%d turns of %d lanes, %d ages of %d jobs; in order: %v", len(l.turns), len(l.lanes), l.ages.Len(), l.waiting.jobs, slices.IsSortedFunc(l.turns, byTurn))
	}
	for _, a := range l.turns {
		if a.tag < l.virtual || l.lanes[a.key] != a || len(a.jobs) == 0 {
			t.Fatalf("lane %s has tag %g and %d jobs at virtual time %g", a.key, a.tag, len(a.jobs), l.virtual)
		}
		for i, r := range a.jobs[1:] {
			if r.mark != a.jobs[i].mark+a.jobs[i].charge {
				t.Fatalf("job %s starts at %g, the one before it ends at %g", r.job.ID, r.mark, a.jobs[i].mark+a.jobs[i].charge)
			}
		}
	}
}

// checkEnds holds that a terminal state never changes.
func (d *driver) checkEnds(t *rapid.T) {
	for id, state := range d.ended {
		if now := d.q.records[id].state; now != state {
			t.Fatalf("job %s went from %s to %s", id, state, now)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.q.records)) {
		if r := d.q.records[id]; r.state.Terminal() {
			d.ended[id] = r.state
		}
	}
}
