package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"qr-gateway/gateway/queue"
)

// Stats implements [queue.Gauge]. The counts are of all processes together, but for Calls.
func (q *Queue) Stats(ctx context.Context) (queue.Stats, error) {
	reply, err := q.run(ctx, "stats")
	if err != nil {
		return queue.Stats{}, err
	}
	v := list(reply)
	if len(v) != 3 {
		return queue.Stats{}, errors.New("read the queue's counts: what its server answers is not whole")
	}
	s := queue.Stats{Models: map[string]queue.ModelStats{}, Claims: int(number(v[1])), Calls: q.calls.stats()}
	counters := list(v[0])
	for i := 0; i+1 < len(counters); i += 2 {
		if to := counter(&s, text(counters[i])); to != nil {
			*to = number(counters[i+1])
		}
	}
	for _, row := range list(v[2]) {
		addLine(&s, list(row))
	}
	return s, nil
}

func counter(s *queue.Stats, name string) *int64 {
	switch name {
	case "submitted":
		return &s.Submitted
	case "refused":
		return &s.Refused
	case "done":
		return &s.Done
	case "failed":
		return &s.Failed
	case "cancelled":
		return &s.Cancelled
	case "expired":
		return &s.Expired
	case "lost":
		return &s.LeasesLost
	case "requeued":
		return &s.Requeued
	case "fenced":
		return &s.Fenced
	case "tokens":
		return &s.Tokens
	default:
		return nil
	}
}

// addLine reads name, jobs, tokens, running, age of the oldest.
func addLine(s *queue.Stats, row []any) {
	if len(row) != 5 {
		return
	}
	digits, model, _ := strings.Cut(shown(text(row[0])), ":")
	class, err := strconv.Atoi(digits)
	if err != nil || class < 0 || class >= queue.Classes {
		return
	}
	m, age := s.Models[model], micros(row[4])
	m.Waiting += int(number(row[1]))
	m.WaitingTokens += int(number(row[2]))
	m.Running += int(number(row[3]))
	m.Oldest = max(m.Oldest, age)
	m.Classes[class] = queue.ClassStats{Waiting: int(number(row[1])), Oldest: age}
	s.Models[model] = m
}
