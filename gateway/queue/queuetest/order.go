package queuetest

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"qr-gateway/gateway/queue"
)

func orderCases() []testCase {
	return []testCase{
		{name: "first in first out within a key", run: fifo},
		{name: "keys take turns", run: turns},
		{name: "a flood does not delay another key", run: flood},
		{name: "models don't wait for each other", run: models},
		{name: "an offer of several models takes the oldest", run: oldestModel},
		{name: "chats go before tasks", run: chatsFirst},
		{name: "an offer for chats leaves tasks", run: chatsOnly},
		{name: "positions follow the order of service", run: positions},
		{name: "positions are published as the line moves", run: moving},
		{name: "a blocked claim gets the next job", run: blockedClaim},
		{name: "a claim that gives up takes nothing", run: abandonedClaim},
		{name: "the same id is one job", run: idempotent},
		{name: "a bad job is refused", run: badJob},
	}
}

func fifo(b *bench) {
	for _, id := range ids("a", 5) {
		b.submit(id, "k")
	}
	b.same("order", b.order(5), ids("a", 5))
	b.none("m")
}

func turns(b *bench) {
	for _, id := range []string{"a0", "a1", "a2", "b0", "b1", "c0"} {
		b.submit(id, id[:1])
	}
	b.same("order", b.order(6), []string{"a0", "b0", "c0", "a1", "b1", "a2"})
}

func flood(b *bench) {
	for _, id := range ids("f", b.many(500)) {
		b.submit(id, "flood")
	}
	b.order(3)
	if got := b.submit("other", "calm"); got.Position > 2 {
		b.Errorf("position behind a flood = %d, want at most 2", got.Position)
	}
	if next := b.order(2); !slices.Contains(next, "other") {
		b.Errorf("after other came, %v went first", next)
	}
}

func models(b *bench) {
	b.submitJob(queue.Job{ID: "a", Key: "k", Model: "busy", Cost: 1})
	b.submitJob(queue.Job{ID: "b", Key: "k", Model: "free", Cost: 1})
	b.same("job", b.claim("free").Job.ID, "b")
	b.none("free", "unheard of")
}

func oldestModel(b *bench) {
	b.submitJob(queue.Job{ID: "a", Key: "k", Model: "one", Cost: 1})
	b.h.Advance(time.Millisecond)
	b.submitJob(queue.Job{ID: "b", Key: "k", Model: "two", Cost: 1})
	b.same("first", b.claim("two", "one").Job.ID, "a")
	b.same("second", b.claim("two", "one").Job.ID, "b")
}

func task(id string) queue.Job {
	return queue.Job{ID: id, Key: "k", Model: "m", Class: queue.ClassTask, Cost: 10}
}

// offer claims whatever is there, down to tasks.
func (b *bench) offer(least queue.Class) queue.Offer {
	return queue.Offer{Node: "node", Models: []string{"m"}, Least: least}
}

func (b *bench) claimAny() queue.Lease {
	b.Helper()
	return b.claimWith(b.offer(queue.ClassTask))
}

func chatsFirst(b *bench) {
	b.submitJob(task("t0"))
	b.submit("a0", "k")
	b.same("position of a task", b.submitJob(task("t1")).Position, 3)
	b.submit("a1", "k")
	b.h.Advance(2 * time.Second)
	b.same("position of a task behind one more chat", b.state("t1", queue.StateQueued).Position, 4)
	var got []string
	for range 4 {
		got = append(got, b.claimAny().Job.ID)
	}
	b.same("order", got, []string{"a0", "a1", "t0", "t1"})
}

func chatsOnly(b *bench) {
	b.submitJob(task("t"))
	b.none("m")
	chats := b.claimLater("m")
	other := b.offerLater(b.offer(queue.ClassTask))
	b.same("for whom there is no chat", (<-other).Job.ID, "t")
	b.submitJob(task("t2"))
	b.submit("a", "k")
	b.same("for chats", (<-chats).Job.ID, "a")
	b.same("what is left", b.claimAny().Job.ID, "t2")
}

func positions(b *bench) {
	want := map[string]int{"a0": 1, "a1": 2, "a2": 3, "b0": 2, "b1": 4, "c0": 3}
	for _, id := range []string{"a0", "a1", "a2", "b0", "b1", "c0"} {
		b.same("position of "+id, b.submit(id, id[:1]).Position, want[id])
	}
}

func moving(b *bench) {
	for _, id := range ids("a", 3) {
		b.submit(id, "k")
	}
	states := b.watch("a2")
	b.same("at first", (<-states).Position, 3)
	b.claim()
	b.h.Advance(2 * time.Second)
	b.same("after one left", (<-states).Position, 2)
	b.cancel("a1")
	b.h.Advance(2 * time.Second)
	got := <-states
	b.same("after one was cancelled", got.Position, 1)
	if got.Wait <= 0 {
		b.Errorf("wait at position 1 = %s, want an estimate", got.Wait)
	}
	b.same("claimed", b.claim().Job.ID, "a2")
	b.same("state", (<-states).State, queue.StateLeased)
}

func blockedClaim(b *bench) {
	got := b.claimLater("other", "m")
	ticket := b.submit("a", "k")
	lease := <-got
	b.same("job", lease.Job.ID, "a")
	b.same("payload", string(lease.Job.Payload), "payload of a")
	b.same("epoch", lease.Epoch, int64(1))
	if ticket.ID != "a" || ticket.Position > 1 {
		b.Errorf("ticket = %+v, want job a next or with a node", ticket)
	}
}

func abandonedClaim(b *bench) {
	ctx, stop := context.WithCancelCause(b.Context())
	done, waiting := make(chan error, 1), b.stats().Claims
	go func() {
		_, err := b.q.Claim(ctx, queue.Offer{Node: "node", Models: []string{"m"}})
		done <- err
	}()
	b.untilClaims(waiting+1, func() bool { return len(done) > 0 })
	why := errors.New("gave up")
	stop(why)
	if err := <-done; !errors.Is(err, why) {
		b.Errorf("Claim = %v, want its context's cause", err)
	}
	b.submit("a", "k")
	b.same("next claim", b.claim().Job.ID, "a")
}

func idempotent(b *bench) {
	b.submit("a", "k")
	b.same("ticket", b.submit("a", "k").Position, 1)
	lease := b.claim()
	b.none("m")
	b.same("while it runs", b.submit("a", "k").State, queue.StateLeased)
	b.settle(lease, queue.StateDone, "")
	b.same("after it ended", b.submit("a", "k").State, queue.StateDone)
	b.none("m")
}

func badJob(b *bench) {
	for name, j := range map[string]queue.Job{
		"no id":         {Key: "k", Model: "m"},
		"no model":      {ID: "a", Key: "k"},
		"negative cost": {ID: "a", Key: "k", Model: "m", Cost: -1},
		"strange class": {ID: "a", Key: "k", Model: "m", Class: queue.Classes},
		"no weight":     {ID: "a", Key: "k", Model: "m", Weight: -1},
		"weight NaN":    {ID: "a", Key: "k", Model: "m", Weight: math.NaN()},
		"many prefixes": {ID: "a", Key: "k", Model: "m", Prefixes: make([]uint64, queue.MaxPrefixes+1)},
	} {
		if _, err := b.q.Submit(b.Context(), j); err == nil {
			b.Errorf("%s: Submit took it", name)
		}
	}
}
