package queuetest

import (
	"time"

	"qr-gateway/gateway/queue"
)

func preferCases() []testCase {
	patient := func(l *Limits) { l.Wait = time.Hour }
	return []testCase{
		{name: "a task that has waited goes before a younger chat", run: agedTask},
		{name: "a chat that has waited longer goes first", run: agedChat},
		{name: "an offer for chats takes a task that has waited", run: agedForChats},
		{name: "a blocked claim for chats gets a task that has waited", run: agedBlocked},
		{name: "a batch job moves up class by class", limits: patient, run: agedBatch},
		{name: "a warm prefix goes first", run: warmFirst},
		{name: "the longest warm prefix wins", run: warmLongest},
		{name: "a key far ahead gains nothing by a warm prefix", run: warmFar},
		{name: "a job that has waited is not overtaken", run: warmLate},
		{name: "within a key a warm prefix changes nothing", run: warmSameKey},
		{name: "a loaded model goes first", run: loadedFirst},
	}
}

func classed(id string, c queue.Class) queue.Job {
	return queue.Job{ID: id, Key: "k", Model: "m", Class: c, Cost: 10}
}

func agedTask(b *bench) {
	b.submitJob(classed("t", queue.ClassTask))
	b.h.Advance(31 * time.Second)
	b.submitJob(classed("a", queue.ClassChat))
	b.same("first", b.claimAny().Job.ID, "t")
	b.same("second", b.claimAny().Job.ID, "a")
}

func agedChat(b *bench) {
	b.submitJob(classed("a", queue.ClassChat))
	b.h.Advance(time.Second)
	b.submitJob(classed("t", queue.ClassTask))
	b.h.Advance(35 * time.Second)
	b.same("first", b.claimAny().Job.ID, "a")
	b.same("second", b.claimAny().Job.ID, "t")
}

func agedForChats(b *bench) {
	b.submitJob(classed("t", queue.ClassTask))
	b.none("m")
	b.h.Advance(31 * time.Second)
	b.same("job", b.claim().Job.ID, "t")
}

func agedBlocked(b *bench) {
	b.submitJob(classed("t", queue.ClassTask))
	got := b.claimLater("m")
	b.h.Advance(32 * time.Second)
	b.same("job", (<-got).Job.ID, "t")
}

func agedBatch(b *bench) {
	for _, id := range ids("b", 2) {
		b.submitJob(classed(id, queue.ClassBatch))
	}
	b.none("m")
	b.h.Advance(31 * time.Second)
	b.none("m")
	lease := b.claimAny()
	b.same("as a task", lease.Job.ID, "b0")
	b.settle(lease, queue.StateDone, "")
	b.h.Advance(30 * time.Second)
	b.same("as a chat", b.claim().Job.ID, "b1")
}

func (b *bench) prefixed(id string, prefixes ...uint64) {
	b.Helper()
	b.submitJob(queue.Job{ID: id, Key: id[:1], Model: "m", Cost: 10, Prefixes: prefixes})
}

func (b *bench) claimWarm(warm ...uint64) string {
	b.Helper()
	return b.claimWith(queue.Offer{Node: "node", Models: []string{"m"}, Warm: warm}).Job.ID
}

func warmFirst(b *bench) {
	b.prefixed("a0", 1, 2)
	b.prefixed("b0", 1<<63, 1<<63+1)
	b.same("first", b.claimWarm(1<<63), "b0")
	b.same("second", b.claimWarm(1<<63), "a0")
}

func warmLongest(b *bench) {
	b.prefixed("a0", 1)
	b.prefixed("b0", 1, 2, 9)
	b.prefixed("c0", 1, 2, 3, 4)
	b.same("first", b.claimWarm(1, 2, 3), "c0")
	b.same("second", b.claimWarm(1, 2, 3), "b0")
}

func warmFar(b *bench) {
	b.cost("a0", 1+b.limits.AffinitySlack)
	b.order(1)
	b.prefixed("a1", 1)
	b.prefixed("b0", 2)
	b.same("first", b.claimWarm(1), "b0")
	b.same("second", b.claimWarm(1), "a1")
}

func warmLate(b *bench) {
	b.prefixed("a0", 2)
	b.h.Advance(b.limits.AffinityAge)
	b.prefixed("b0", 1)
	b.same("first", b.claimWarm(1), "a0")
}

func warmSameKey(b *bench) {
	b.prefixed("a0", 2)
	b.prefixed("a1", 1)
	b.same("first", b.claimWarm(1), "a0")
}

func loadedFirst(b *bench) {
	for _, id := range ids("a", 2) {
		b.submitJob(queue.Job{ID: id, Key: "k", Model: "cold", Cost: 1})
	}
	for _, id := range ids("b", 2) {
		b.submitJob(queue.Job{ID: id, Key: "k", Model: "hot", Cost: 1})
	}
	offer := queue.Offer{Node: "node", Models: []string{"cold", "hot"}, Loaded: []string{"hot"}}
	b.same("first", b.claimWith(offer).Job.ID, "b0")
	b.h.Advance(b.limits.AffinityAge)
	b.same("of one that has waited", b.claimWith(offer).Job.ID, "a0")
}
