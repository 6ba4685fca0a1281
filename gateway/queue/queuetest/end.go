package queuetest

import (
	"context"
	"sync"
	"time"

	"qr-gateway/gateway/queue"
)

func endCases() []testCase {
	return []testCase{
		{name: "cancel while queued", run: cancelQueued},
		{name: "cancel while leased", run: func(b *bench) { cancelRunning(b, 0) }},
		{name: "cancel while streaming", run: func(b *bench) { cancelRunning(b, 3) }},
		{name: "a terminal state never changes", run: terminal},
		{name: "a job expires in the queue", run: expires},
		{name: "a job's own deadline comes first", run: ownDeadline},
		{name: "a running job does not expire", run: runsOn},
		{name: "a watch sees every stage and ends", run: watchAll},
		{name: "a slow watcher sees the last state", run: watchSlow},
		{name: "a watch ends with its context", run: watchEnds},
		{name: "stats add up", run: stats},
		{name: "many at once, each at most once", run: storm},
	}
}

func cancelQueued(b *bench) {
	for _, id := range ids("a", 3) {
		b.submit(id, "k")
	}
	b.cancel("a1")
	b.same("reason", b.state("a1", queue.StateCancelled).Reason, "client left")
	b.same("order", b.order(2), []string{"a0", "a2"})
	b.none("m")
}

func cancelRunning(b *bench, seq int64) {
	b.submit("a", "k")
	lease := b.claim()
	b.beat(lease, seq)
	b.cancel("a")
	if !b.lost(lease) {
		b.Error("the node is not told")
	}
	b.fenced(lease)
	b.state("a", queue.StateCancelled)
	b.h.Advance(2 * b.limits.Lease)
	b.none("m")
}

func terminal(b *bench) {
	for _, end := range []queue.State{queue.StateDone, queue.StateFailed, queue.StateCancelled} {
		id := string(end)
		b.submit(id, "k")
		lease := b.claim()
		b.settle(lease, end, "")
		b.cancel(id)
		b.fenced(lease)
		b.h.Advance(2 * b.limits.Lease)
		b.state(id, end)
	}
	b.none("m")
}

func expires(b *bench) {
	b.submit("a", "k")
	b.h.Advance(b.limits.Wait + 2*time.Second)
	if b.state("a", queue.StateExpired).Reason == "" {
		b.Error("nothing says why the job expired")
	}
	b.none("m")
}

func ownDeadline(b *bench) {
	b.submitJob(queue.Job{ID: "a", Key: "k", Model: "m", Deadline: time.Now().Add(5 * time.Second)})
	b.submit("b", "k")
	b.h.Advance(7 * time.Second)
	b.state("a", queue.StateExpired)
	b.same("next", b.claim().Job.ID, "b")
}

func runsOn(b *bench) {
	b.submit("a", "k")
	lease := b.claim()
	end := b.limits.Wait + 2*b.limits.Lease
	for i := int64(1); time.Duration(i)*time.Second < end; i++ {
		b.h.Advance(time.Second)
		b.beat(lease, i)
	}
	b.state("a", queue.StateStreaming)
}

func watchAll(b *bench) {
	b.submit("a", "k")
	states := b.watch("a")
	got := []queue.State{(<-states).State}
	lease := b.claim()
	got = append(got, (<-states).State)
	b.beat(lease, 1)
	got = append(got, (<-states).State)
	b.settle(lease, queue.StateDone, "")
	for s := range states {
		got = append(got, s.State)
	}
	b.same("states", got, []queue.State{queue.StateQueued, queue.StateLeased, queue.StateStreaming, queue.StateDone})
}

func watchSlow(b *bench) {
	b.submit("a", "k")
	states := b.watch("a")
	lease := b.claim()
	b.beat(lease, 1)
	b.settle(lease, queue.StateFailed, "engine died")
	b.h.Settle()
	var last queue.Status
	for s := range states {
		last = s
	}
	b.same("last", last, queue.Status{State: queue.StateFailed, Epoch: 1, Reason: "engine died"})
}

func watchEnds(b *bench) {
	b.submit("a", "k")
	ctx, stop := context.WithCancel(b.Context())
	states, err := b.q.Watch(ctx, "a")
	if err != nil {
		b.Fatal(err)
	}
	stop()
	for s := range states {
		b.same("state", s.State, queue.StateQueued)
	}
	b.claim()
}

func stats(b *bench) {
	for _, id := range ids("a", 5) {
		b.submit(id, "k")
	}
	b.settle(b.claim(), queue.StateDone, "")
	b.settle(b.claim(), queue.StateFailed, "x")
	b.claim()
	b.cancel("a4")
	b.h.Advance(time.Second)
	s := b.stats()
	m := s.Models["m"]
	b.same("of the model", []int{m.Waiting, m.Running, m.WaitingTokens}, []int{1, 1, 10})
	b.same("in all", []int64{s.Submitted, s.Done, s.Failed, s.Cancelled, s.Tokens}, []int64{5, 1, 1, 1, 14})
	b.same("of the class", m.Classes[queue.ClassChat].Waiting, 1)
	if m.Oldest < time.Second {
		b.Errorf("oldest = %s, want at least 1 s", m.Oldest)
	}
}

// storm has four clients and four workers at it together; each job ends once and none runs twice.
func storm(b *bench) {
	each := b.many(50)
	var clients, workers sync.WaitGroup
	for c := range 4 {
		clients.Go(func() {
			for i, id := range ids(string(rune('a'+c)), each) {
				b.follow(id, i%10 == 7)
			}
		})
	}
	ran := make(chan string, 4*each)
	ctx, stop := context.WithCancel(b.Context())
	for range 4 {
		workers.Go(func() { b.work(ctx, ran) })
	}
	clients.Wait()
	stop()
	workers.Wait()
	close(ran)
	seen := map[string]bool{}
	for id := range ran {
		if seen[id] {
			b.Errorf("job %s ran twice", id)
		}
		seen[id] = true
	}
	if least := 4 * each * 9 / 10; len(seen) < least {
		b.Errorf("%d jobs ran, want at least %d", len(seen), least)
	}
}

// work settles what it claims until ctx ends.
func (b *bench) work(ctx context.Context, ran chan<- string) {
	for {
		lease, err := b.q.Claim(ctx, queue.Offer{Node: "node", Models: []string{"m"}})
		if err != nil {
			return
		}
		if b.q.Settle(ctx, lease, queue.Outcome{State: queue.StateDone}) == nil {
			ran <- lease.Job.ID
		}
	}
}

// follow submits a job and waits for its end.
func (b *bench) follow(id string, cancelled bool) {
	if _, err := b.q.Submit(b.Context(), queue.Job{ID: id, Key: id[:1], Model: "m", Cost: 1}); err != nil {
		b.Errorf("Submit(%s): %v", id, err)
		return
	}
	states, err := b.q.Watch(b.Context(), id)
	if err != nil {
		b.Errorf("Watch(%s): %v", id, err)
		return
	}
	if cancelled {
		if err := b.q.Cancel(b.Context(), id, "test"); err != nil {
			b.Errorf("Cancel(%s): %v", id, err)
		}
	}
	var last queue.State
	for s := range states {
		last = s.State
	}
	if !last.Terminal() {
		b.Errorf("job %s ended as %q", id, last)
	}
}
