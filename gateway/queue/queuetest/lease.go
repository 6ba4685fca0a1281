package queuetest

import (
	"errors"
	"time"

	"qr-gateway/gateway/queue"
)

func leaseCases() []testCase {
	return []testCase{
		{name: "a lease kept up is not lost", run: keptUp},
		{name: "a silent node loses its job before the first token", run: silentBefore},
		{name: "a silent node fails its job after the first token", run: silentAfter},
		{name: "a lost job goes first", run: lostFirst},
		{name: "attempts run out", run: attempts},
		{name: "a stream without progress is lost", limits: func(l *Limits) { l.Stall = 10 * time.Second }, run: stalled},
		{name: "an old epoch is fenced", run: oldEpoch},
		{name: "a hand-back costs no attempt", run: handBack},
		{name: "a hand-back with a reason costs one", run: handBackReason},
		{name: "a stream can't be handed back", run: handBackStreaming},
		{name: "an unknown lease is fenced", run: unknownLease},
	}
}

// silence is long enough for a lease to be lost.
func (b *bench) silence() { b.h.Advance(b.limits.Lease + 2*time.Second) }

func keptUp(b *bench) {
	b.submit("a", "k")
	lease := b.claim()
	for range 10 {
		b.h.Advance(b.limits.Lease / 3)
		b.beat(lease, 0)
	}
	b.state("a", queue.StateLeased)
	b.settle(lease, queue.StateDone, "")
	b.state("a", queue.StateDone)
	if b.lost(lease) {
		b.Error("Lost was closed though the holder settled")
	}
}

func silentBefore(b *bench) {
	b.submit("a", "k")
	first := b.claim()
	b.silence()
	if !b.lost(first) {
		b.Error("Lost is open though the lease expired")
	}
	if s := b.state("a", queue.StateQueued); s.Reason == "" {
		b.Error("nothing says why the job waits again")
	}
	b.fenced(first)
	second := b.claim()
	b.same("epoch", second.Epoch, first.Epoch+1)
	b.same("payload", string(second.Job.Payload), "payload of a")
	b.fenced(first)
	b.settle(second, queue.StateDone, "")
	b.state("a", queue.StateDone)
}

func silentAfter(b *bench) {
	b.submit("a", "k")
	lease := b.claim()
	b.beat(lease, 1)
	b.state("a", queue.StateStreaming)
	b.silence()
	if s := b.state("a", queue.StateFailed); s.Reason == "" {
		b.Error("nothing says why the job failed")
	}
	b.fenced(lease)
	b.none("m")
}

func lostFirst(b *bench) {
	for _, id := range []string{"a0", "a1", "b0"} {
		b.submit(id, id[:1])
	}
	b.claim()
	b.silence()
	b.same("position", b.state("a0", queue.StateQueued).Position, 1)
	b.same("first", b.order(3)[0], "a0")
}

func attempts(b *bench) {
	b.submit("a", "k")
	for range b.limits.Attempts {
		b.claim()
		b.silence()
	}
	b.state("a", queue.StateFailed)
	b.none("m")
}

func stalled(b *bench) {
	b.submit("a", "k")
	lease := b.claim()
	for range 5 { // a long prompt is no stall
		b.h.Advance(4 * time.Second)
		b.beat(lease, 0)
	}
	for seq := range int64(5) {
		b.beat(lease, 1+seq)
		b.h.Advance(4 * time.Second)
	}
	b.state("a", queue.StateStreaming)
	b.beat(lease, 5)
	b.h.Advance(4 * time.Second)
	b.beat(lease, 5)
	b.h.Advance(4 * time.Second)
	b.state("a", queue.StateFailed)
	b.fenced(lease)
}

func oldEpoch(b *bench) {
	b.submit("a", "k")
	first := b.claim()
	b.settle(first, queue.StateQueued, "")
	second := b.claim()
	b.beat(second, 1)
	b.fenced(first)
	b.state("a", queue.StateStreaming)
	b.settle(second, queue.StateDone, "")
	b.fenced(second)
	b.state("a", queue.StateDone)
}

func handBack(b *bench) {
	b.submit("a", "k")
	for range 3 * b.limits.Attempts {
		b.settle(b.claim(), queue.StateQueued, "")
	}
	b.state("a", queue.StateQueued)
}

func handBackReason(b *bench) {
	b.submit("a", "k")
	for range b.limits.Attempts - 1 {
		b.settle(b.claim(), queue.StateQueued, "engine died")
		b.same("reason", b.state("a", queue.StateQueued).Reason, "engine died")
	}
	b.settle(b.claim(), queue.StateQueued, "engine died")
	b.same("reason", b.state("a", queue.StateFailed).Reason, "engine died")
}

func handBackStreaming(b *bench) {
	b.submit("a", "k")
	lease := b.claim()
	b.beat(lease, 1)
	if err := b.q.Settle(b.Context(), lease, queue.Outcome{State: queue.StateQueued}); err == nil {
		b.Error("Settle(queued) was taken after the first token")
	}
	b.state("a", queue.StateStreaming)
	b.settle(lease, queue.StateFailed, "engine died")
	b.state("a", queue.StateFailed)
}

func unknownLease(b *bench) {
	b.fenced(queue.Lease{Job: queue.Job{ID: "never"}, Epoch: 1})
	if _, err := b.q.Watch(b.Context(), "never"); !errors.Is(err, queue.ErrUnknown) {
		b.Errorf("Watch = %v, want ErrUnknown", err)
	}
	if err := b.q.Cancel(b.Context(), "never", "test"); !errors.Is(err, queue.ErrUnknown) {
		b.Errorf("Cancel = %v, want ErrUnknown", err)
	}
}
