package queuetest

import (
	"errors"
	"time"

	"qr-gateway/gateway/queue"
)

func limitCases() []testCase {
	return []testCase{
		{name: "limit on jobs", limits: func(l *Limits) { l.Jobs = 2 }, run: limitJobs},
		{name: "limit on jobs per key", limits: func(l *Limits) { l.JobsPerKey = 2 }, run: limitJobsPerKey},
		{name: "limit on tokens", limits: func(l *Limits) { l.Tokens = 25 }, run: limitTokens},
		{name: "limit on tokens per key", limits: func(l *Limits) { l.TokensPerKey = 25 }, run: limitTokensPerKey},
		{name: "limit on bytes", limits: func(l *Limits) { l.Bytes = 30 }, run: limitBytes},
		{name: "limit on bytes per key", limits: func(l *Limits) { l.BytesPerKey = 30 }, run: limitBytesPerKey},
		{name: "a payload that never fits", limits: func(l *Limits) { l.Payload = 5 }, run: tooLarge},
		{name: "a deadline that can't be kept", run: tooLate},
		{name: "a job over the token limit is taken alone", limits: func(l *Limits) { l.Tokens = 5 }, run: aloneOverLimit},
		{name: "limits don't bind while a node waits", limits: func(l *Limits) { l.Jobs = 1 }, run: freeNode},
		{name: "a new job is told what room is left", limits: func(l *Limits) { l.Jobs, l.JobsPerKey, l.Tokens, l.TokensPerKey = 4, 3, 1000, 25 }, run: roomLeft},
		{name: "retry-after comes from the drain rate", limits: func(l *Limits) { l.Jobs = 4 }, run: retryAfter},
	}
}

// refused submits a job that must be refused.
func (b *bench) refused(j queue.Job, limit string) {
	b.Helper()
	b.same("most", b.refusal(j, limit).Max > 0, true)
}

// refusal is refused with what it was told.
func (b *bench) refusal(j queue.Job, limit string) *queue.FullError {
	b.Helper()
	_, err := b.q.Submit(b.Context(), j)
	var full *queue.FullError
	if !errors.As(err, &full) || !errors.Is(err, queue.ErrFull) {
		b.Fatalf("Submit = %v, want a *FullError", err)
	}
	b.same("limit", full.Limit, limit)
	if full.RetryAfter < time.Second || full.RetryAfter > time.Minute {
		b.Errorf("RetryAfter = %s, want 1 s to 60 s", full.RetryAfter)
	}
	return full
}

func limitJobs(b *bench) {
	b.submit("a", "1")
	b.submit("b", "2")
	full := b.refusal(job("c", "3"), queue.LimitJobs)
	b.same("depth", full.Depth, 2)
	b.claim()
	b.submit("c", "3")
}

func limitJobsPerKey(b *bench) {
	b.submit("a", "1")
	b.submit("b", "1")
	b.refused(job("c", "1"), queue.LimitJobsPerKey)
	b.submit("d", "2")
	b.cancel("a")
	b.submit("c", "1")
}

func limitTokens(b *bench) {
	b.submit("a", "1")
	b.submit("b", "2")
	b.refused(job("c", "3"), queue.LimitTokens)
	b.claim()
	b.submit("c", "3")
}

func limitTokensPerKey(b *bench) {
	b.submit("a", "1")
	b.submit("b", "1")
	b.refused(job("c", "1"), queue.LimitTokensPerKey)
	b.submit("c", "2")
}

func limitBytes(b *bench) {
	b.submit("a", "1")
	b.submit("b", "2")
	full := b.refusal(job("c", "3"), queue.LimitBytes)
	b.same("depth", full.Depth, 2*len("payload of a"))
	b.claim()
	b.submit("c", "3")
}

func limitBytesPerKey(b *bench) {
	b.submit("a", "1")
	b.submit("b", "1")
	b.refused(job("c", "1"), queue.LimitBytesPerKey)
	b.submit("d", "2")
	b.cancel("a")
	b.submit("c", "1")
}

func tooLarge(b *bench) {
	_, err := b.q.Submit(b.Context(), job("a", "1"))
	var large *queue.TooLargeError
	if !errors.As(err, &large) || !errors.Is(err, queue.ErrTooLarge) || errors.Is(err, queue.ErrFull) {
		b.Fatalf("Submit = %v, want a *TooLargeError", err)
	}
	b.same("sizes", []int{large.Size, large.Max}, []int{len("payload of a"), 5})
	b.none("m")
}

// tooLate has a line that one job leaves every 5 s.
func tooLate(b *bench) {
	for _, id := range ids("a", 6) {
		b.submit(id, "k")
	}
	for range 3 {
		b.h.Advance(5 * time.Second)
		b.settle(b.claim(), queue.StateDone, "")
	}
	late := job("late", "k")
	late.Deadline = time.Now().Add(12 * time.Second)
	full := b.refusal(late, queue.LimitDeadline)
	if full.Wait < 18*time.Second || full.Wait > 22*time.Second || full.Within > 12*time.Second || full.Within < 11*time.Second {
		b.Errorf("wait %s, within %s; want 20 s and 12 s", full.Wait, full.Within)
	}
	early := job("early", "k")
	early.Deadline = time.Now().Add(30 * time.Second)
	b.submitJob(early)
}

func aloneOverLimit(b *bench) {
	b.submit("a", "1")
	b.refused(job("b", "1"), queue.LimitTokens)
}

func freeNode(b *bench) {
	b.submit("waits", "k")
	got := b.claimLater("other")
	b.submitJob(queue.Job{ID: "runs", Key: "k", Model: "other", Cost: 1})
	b.same("claimed", (<-got).Job.ID, "runs")
}

func retryAfter(b *bench) {
	for _, id := range ids("a", 4) {
		b.submit(id, "k")
	}
	for _, id := range ids("b", 3) {
		b.h.Advance(5 * time.Second)
		b.settle(b.claim(), queue.StateDone, "")
		b.submit(id, "k")
	}
	got := b.refusal(job("c", "k"), queue.LimitJobs).RetryAfter
	if got < 5*time.Second || got > 7*time.Second {
		b.Errorf("RetryAfter = %s when one job leaves every 5 s", got)
	}
}

// roomLeft: what a key may still have waiting is bounded by its own limits and by those of all.
func roomLeft(b *bench) {
	got := b.claimLater("m")
	room := b.submit("taken", "1").Room
	b.same("of a job that doesn't wait", room, queue.Room{Jobs: queue.Share{Limit: 3, Left: 3}, Tokens: queue.Share{Limit: 25, Left: 25}})
	<-got
	shares := func(id, key string) []queue.Share {
		r := b.submit(id, key).Room
		return []queue.Share{r.Jobs, r.Tokens}
	}
	b.same("of the first that waits", shares("a", "1"), []queue.Share{{Limit: 3, Left: 2}, {Limit: 25, Left: 15}})
	b.same("of another key", shares("b", "2"), []queue.Share{{Limit: 3, Left: 2}, {Limit: 25, Left: 15}})
	b.same("of the limit of all", shares("c", "2"), []queue.Share{{Limit: 3, Left: 1}, {Limit: 25, Left: 5}})
	b.same("of a job that is known", b.submit("a", "1").Room, queue.Room{})
}
