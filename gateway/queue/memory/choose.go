package memory

import (
	"slices"
	"time"

	"qr-gateway/gateway/queue"
)

// option is a line that a claim may be served from.
type option struct {
	line   *line
	class  queue.Class // with what its oldest job has gained by waiting
	aged   bool        // it has gained
	oldest *record
	loaded bool
}

// pick is the job to run next for an offer: of the lines whose class is the most urgent, the one that has waited longest,
// and of that line the key whose turn it is.
func (q *Queue) pick(offer *queue.Offer, now time.Time) *record {
	for {
		best, ok := q.best(offer, now)
		if !ok {
			return nil
		}
		r := best.oldest // what the line has gained by its age is for that job
		if !best.aged {
			r = q.choose(best.line, offer, now)
		}
		if !r.late(now) {
			return r
		}
		q.expire(r)
	}
}

// best is the line to serve. One whose model is loaded is preferred as long as nobody waits too long for it.
func (q *Queue) best(offer *queue.Offer, now time.Time) (best option, ok bool) {
	var room [8]option
	all := q.options(offer, now, room[:0])
	for _, o := range all {
		if !ok || sooner(o, best) {
			best, ok = o, true
		}
	}
	if !ok || best.loaded || now.Sub(best.oldest.submitted) >= q.cfg.AffinityAge {
		return best, ok
	}
	near, found := best, false
	for _, o := range all {
		if o.loaded && o.class == best.class && (!found || sooner(o, near)) {
			near, found = o, true
		}
	}
	return near, ok
}

func sooner(a, b option) bool {
	if a.class != b.class {
		return a.class < b.class
	}
	return a.oldest.submitted.Before(b.oldest.submitted)
}

// options appends the lines that have something for an offer.
func (q *Queue) options(offer *queue.Offer, now time.Time, out []option) []option {
	for _, m := range offer.Models {
		for class := range queue.Class(queue.Classes) {
			l := q.lines[place{m, class}]
			if l == nil || l.waiting.jobs == 0 {
				continue
			}
			o := option{line: l, class: class, oldest: l.oldest(), loaded: slices.Contains(offer.Loaded, m)}
			if q.cfg.Age > 0 {
				o.class = max(0, class-queue.Class(now.Sub(o.oldest.submitted)/q.cfg.Age))
				o.aged = o.class < class
			}
			if o.class <= offer.Least {
				out = append(out, o)
			}
		}
	}
	return out
}

// scan bounds how many keys are looked at for a warm prefix.
const scan = 16

// choose is the next job of a line: that of the key whose turn it is, or of one whose turn is near and whose prefix is warm.
func (q *Queue) choose(l *line, offer *queue.Offer, now time.Time) *record {
	chosen, most := l.turns[0].jobs[0], 0
	if len(offer.Warm) == 0 {
		return chosen
	}
	bound := l.turns[0].tag + float64(q.cfg.AffinitySlack)
	for i, a := range l.turns {
		if i == scan || a.tag > bound {
			break
		}
		r := a.jobs[0]
		if n := r.warm(offer.Warm); n > most {
			chosen, most = r, n
		}
		if now.Sub(r.submitted) >= q.cfg.AffinityAge {
			break // not to be overtaken
		}
	}
	return chosen
}

// warm is how many of a job's prefixes are covered by the longest that a node has ready.
func (r *record) warm(have []uint64) int {
	for n := len(r.job.Prefixes); n > 0; n-- {
		if slices.Contains(have, r.job.Prefixes[n-1]) {
			return n
		}
	}
	return 0
}
