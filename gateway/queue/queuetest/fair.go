package queuetest

import (
	"slices"
	"strings"

	"qr-gateway/gateway/queue"
)

func fairCases() []testCase {
	return []testCase{
		{name: "turns are weighed by tokens", run: byTokens},
		{name: "a key with twice the weight gets twice as much", run: byWeight},
		{name: "a run that takes less is charged less", run: func(b *bench) { charged(b, 1000, 10, 2) }},
		{name: "a run that takes more is charged more", run: func(b *bench) { charged(b, 1, 1000, 6) }},
		{name: "a cancelled run is charged what it took", run: chargedCancelled},
		{name: "a job handed back is not charged", run: chargedBack},
		{name: "staying away earns nothing", run: noCredit},
		{name: "a debt outlives an empty lane", run: debt},
	}
}

// cost submits a job of a key that is the first letter of its id.
func (b *bench) cost(id string, tokens int) {
	b.Helper()
	b.submitJob(queue.Job{ID: id, Key: id[:1], Model: "m", Cost: tokens})
}

func (b *bench) settleAt(l queue.Lease, tokens int) {
	b.Helper()
	if err := b.q.Settle(b.Context(), l, queue.Outcome{State: queue.StateDone, Cost: tokens}); err != nil {
		b.Fatalf("Settle(%s): %v", l.Job.ID, err)
	}
}

func byTokens(b *bench) {
	b.cost("a0", 100)
	b.cost("a1", 100)
	for _, id := range ids("b", 12) {
		b.cost(id, 10)
	}
	got := b.order(14)
	if at := slices.Index(got, "a1"); at < 10 || at > 12 {
		b.Errorf("the second job of ten times the cost went as number %d: %v", at+1, got)
	}
}

func byWeight(b *bench) {
	for i := range 12 {
		b.submitJob(queue.Job{ID: ids("a", 12)[i], Key: "a", Model: "m", Cost: 10, Weight: 2})
		b.submitJob(queue.Job{ID: ids("b", 12)[i], Key: "b", Model: "m", Cost: 10})
	}
	heavy := 0
	for _, id := range b.order(12) {
		if strings.HasPrefix(id, "a") {
			heavy++
		}
	}
	if heavy < 7 || heavy > 9 {
		b.Errorf("a key of weight 2 got %d of 12 turns beside one of weight 1", heavy)
	}
}

// charged has one key run a job that was thought to take so much and takes another amount; place is where its next goes among those
// of another key.
func charged(b *bench, thought, taken, place int) {
	b.Helper()
	b.cost("a0", thought)
	first := b.claim()
	for _, id := range ids("b", 5) {
		b.cost(id, 10)
	}
	b.cost("a1", 10)
	b.settleAt(first, taken)
	b.next("a1", place)
}

// next asserts where a job is among those that go next, give or take one.
func (b *bench) next(id string, place int) {
	b.Helper()
	got := b.order(6)
	if at := slices.Index(got, id) + 1; at < place-1 || at > place+1 {
		b.Errorf("%s went as number %d, want %d: %v", id, at, place, got)
	}
}

func chargedCancelled(b *bench) {
	b.cost("a0", 1000)
	lease := b.claim()
	for _, id := range ids("b", 5) {
		b.cost(id, 10)
	}
	b.cost("a1", 10)
	if err := b.q.Heartbeat(b.Context(), lease, queue.Progress{Seq: 3, Cost: 10}); err != nil {
		b.Fatal(err)
	}
	b.cancel("a0")
	b.next("a1", 2)
}

func chargedBack(b *bench) {
	b.cost("a0", 1000)
	b.settle(b.claim(), queue.StateQueued, "")
	for _, id := range ids("b", 5) {
		b.cost(id, 10)
	}
	b.settleAt(b.claim(), 10)
	b.cost("a1", 10)
	b.next("a1", 2)
}

func noCredit(b *bench) {
	for _, id := range ids("a", 16) {
		b.cost(id, 10)
	}
	b.order(10)
	for _, id := range ids("b", 9) {
		b.cost(id, 10)
	}
	late := 0
	for _, id := range b.order(8) {
		if strings.HasPrefix(id, "b") {
			late++
		}
	}
	if late < 3 || late > 5 {
		b.Errorf("a key that came late got %d of 8 turns, want half", late)
	}
}

func debt(b *bench) {
	b.cost("a0", 1000)
	b.order(1)
	for _, id := range ids("b", 5) {
		b.cost(id, 10)
	}
	b.cost("a1", 10)
	b.next("a1", 6)
}
