package queuetest

import (
	"qr-gateway/gateway/queue"
)

func repeatCases() []testCase {
	return []testCase{
		{name: "the same idempotency key is one job", run: repeated},
		{name: "an idempotency key is its caller's own", run: repeatedByOther},
		{name: "a repeated job is told how the first ended", run: repeatedAfter},
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

func floor(b *bench) {
	b.submitJob(queue.Job{ID: "a", Key: "k", Model: "m", Floor: 7})
	lease := b.claim()
	b.same("epoch", lease.Epoch, int64(8))
	b.fenced(queue.Lease{Job: lease.Job, Epoch: 1, Node: "node"})
	b.settle(lease, queue.StateDone, "")
}
