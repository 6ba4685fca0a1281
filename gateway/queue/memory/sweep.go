package memory

import (
	"fmt"
	"slices"
	"time"

	"qr-gateway/gateway/queue"
)

// sweep does what time alone brings about.
func (q *Queue) sweep(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.loseLeases(now)
	for _, l := range q.lines {
		q.expireLate(l, now)
	}
	q.rematch(now)
	for at, l := range q.lines {
		q.reposition(l, q.ahead(at))
	}
	q.forget(now)
}

// loseLeases takes back the leases nobody keeps up. The newest job goes first, so that the oldest ends up at the head.
func (q *Queue) loseLeases(now time.Time) {
	var lost []*record
	for _, r := range q.running {
		if q.overdue(r, now) != "" {
			lost = append(lost, r)
		}
	}
	slices.SortFunc(lost, func(a, b *record) int { return b.submitted.Compare(a.submitted) })
	for _, r := range lost {
		q.lose(r, q.overdue(r, now))
	}
}

// overdue says why a running job loses its lease, or nothing.
func (q *Queue) overdue(r *record, now time.Time) string {
	switch {
	case !now.Before(r.expires):
		return fmt.Sprintf("node %s has not been heard of for %s", r.node, q.cfg.Lease)
	case r.state == queue.StateStreaming && q.cfg.Stall > 0 && now.Sub(r.moved) >= q.cfg.Stall:
		return fmt.Sprintf("node %s has made no progress for %s", r.node, q.cfg.Stall)
	default:
		return ""
	}
}

// rematch gives jobs to claims that may have them now that the jobs have waited longer.
func (q *Queue) rematch(now time.Time) {
	for _, w := range slices.Clone(q.waiters) {
		if r := q.pick(&w.offer, now); r != nil {
			q.drop(w)
			q.grant(r, w)
		}
	}
}

func (q *Queue) expireLate(l *line, now time.Time) {
	var late []*record
	l.each(func(_ int, r *record) {
		if r.late(now) {
			late = append(late, r)
		}
	})
	for _, r := range late {
		q.expire(r)
	}
}

// reposition publishes the places that have changed. A change on every claim would cost the square of the depth; once a
// tick costs the depth.
func (q *Queue) reposition(l *line, ahead int) {
	l.each(func(position int, r *record) {
		if r.position != ahead+position {
			r.position = ahead + position
			q.publish(r)
		}
	})
}
