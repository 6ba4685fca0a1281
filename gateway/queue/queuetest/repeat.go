package queuetest

import (
	"errors"
	"time"

	"qr-gateway/gateway/queue"
)

func repeatCases() []testCase {
	return []testCase{
		{name: "the same idempotency key is one job", run: repeated},
		{name: "an idempotency key is its caller's own", run: repeatedByOther},
		{name: "a repeated job is told how the first ended", run: repeatedAfter},
		{name: "a job that never ran frees its idempotency key", limits: func(l *Limits) { l.KeepJobs = 1 }, run: neverRan},
		{name: "a job that was handed back keeps its idempotency key", run: ranInVain},
		{name: "epochs begin above the floor", run: floor},
	}
}

func keyed(id, key string) queue.Job {
	return queue.Job{ID: id, Key: key, Model: "m", Cost: 1, IdempotencyKey: "once"}
}

func repeated(b *bench) {
	b.same("first", b.submitJob(keyed("a", "k")).ID, "a")
	again := b.submitJob(keyed("b", "k"))
	b.same("again", []any{again.ID, again.Position}, []any{"a", 1})
	b.same("job", b.claim().Job.ID, "a")
	b.none("m")
}

func repeatedByOther(b *bench) {
	b.submitJob(keyed("a", "1"))
	b.same("of another caller", b.submitJob(keyed("b", "2")).ID, "b")
	b.same("jobs", b.order(2), []string{"a", "b"})
}

func repeatedAfter(b *bench) {
	b.submitJob(keyed("a", "k"))
	b.settle(b.claim(), queue.StateFailed, "engine died")
	b.same("again", b.submitJob(keyed("b", "k")), queue.Ticket{ID: "a", State: queue.StateFailed})
	b.none("m")
}

// neverRan has jobs end in the queue. That they are forgotten later does nothing to whoever has the key by then.
func neverRan(b *bench) {
	b.submitJob(keyed("a", "k"))
	b.cancel("a")
	b.same("after a cancelled one", b.submitJob(keyed("b", "k")).ID, "b")
	b.h.Advance(b.limits.Wait + 2*time.Second)
	b.state("b", queue.StateExpired)
	b.same("after an expired one", b.submitJob(keyed("c", "k")).ID, "c")
	b.submit("other", "k")
	b.cancel("other")
	b.h.Advance(2 * time.Second)
	for _, id := range []string{"a", "b"} {
		if _, err := b.q.Watch(b.Context(), id); !errors.Is(err, queue.ErrUnknown) {
			b.Errorf("Watch(%s) = %v, want it to be forgotten", id, err)
		}
	}
	b.same("again", b.submitJob(keyed("d", "k")).ID, "c")
	b.same("job", b.claim().Job.ID, "c")
	b.none("m")
}

func ranInVain(b *bench) {
	b.submitJob(keyed("a", "k"))
	b.settle(b.claim(), queue.StateQueued, "")
	b.cancel("a")
	b.same("again", b.submitJob(keyed("b", "k")), queue.Ticket{ID: "a", State: queue.StateCancelled})
	b.none("m")
}

func floor(b *bench) {
	b.submitJob(queue.Job{ID: "a", Key: "k", Model: "m", Floor: 7})
	lease := b.claim()
	b.same("epoch", lease.Epoch, int64(8))
	b.fenced(queue.Lease{Job: lease.Job, Epoch: 1, Node: "node"})
	b.settle(lease, queue.StateDone, "")
}
