package memory

import (
	"container/list"
	"time"

	"qr-gateway/gateway/queue"
)

// place is where a job waits.
type place struct {
	model string
	class queue.Class
}

func placeOf(j *queue.Job) place { return place{j.Model, j.Class} }

// line holds the waiting jobs of one place: a lane for each key, and the lanes in the order they are served.
type line struct {
	lanes   map[string]*lane
	ring    list.List // of *lane; the front is next
	waiting usage
	running int
	meter   meter
}

// lane holds the waiting jobs of one key, oldest first.
type lane struct {
	key  string
	jobs list.List // of *record
	turn *list.Element
}

func (l *line) pushBack(r *record) {
	a := l.lanes[r.job.Key]
	if a == nil {
		a = &lane{key: r.job.Key}
		a.turn = l.ring.PushBack(a)
		l.lanes[a.key] = a
	}
	r.place = a.jobs.PushBack(r)
	l.added(r)
}

func (l *line) pushFront(r *record) {
	a := l.lanes[r.job.Key]
	if a == nil {
		a = &lane{key: r.job.Key}
		a.turn = l.ring.PushFront(a)
		l.lanes[a.key] = a
	}
	l.ring.MoveToFront(a.turn)
	r.place = a.jobs.PushFront(r)
	l.added(r)
}

func (l *line) added(r *record) {
	l.waiting.jobs++
	l.waiting.tokens += r.job.Cost
	l.meter.start(time.Now())
}

// next is the job whose turn it is, or nil.
func (l *line) next() *record {
	front := l.ring.Front()
	if front == nil {
		return nil
	}
	return front.Value.(*lane).jobs.Front().Value.(*record)
}

// remove takes r out of its lane. The key keeps its turn unless it has nothing left.
func (l *line) remove(r *record) {
	a := l.lanes[r.job.Key]
	a.jobs.Remove(r.place)
	r.place = nil
	if a.jobs.Len() == 0 {
		l.ring.Remove(a.turn)
		delete(l.lanes, a.key)
	}
	l.waiting.jobs--
	l.waiting.tokens -= r.job.Cost
	if l.waiting.jobs == 0 {
		l.meter.stop()
	}
}

// served moves a key that had its turn to the end.
func (l *line) served(key string) {
	if a := l.lanes[key]; a != nil {
		l.ring.MoveToBack(a.turn)
	}
}

// last is the position of the newest job of a key: how many leave before it, plus 1.
func (l *line) last(key string) int {
	own := l.lanes[key]
	n, before := own.jobs.Len(), true
	for e := l.ring.Front(); e != nil; e = e.Next() {
		switch a := e.Value.(*lane); {
		case a == own:
			before = false
		case before:
			n += min(a.jobs.Len(), own.jobs.Len())
		default:
			n += min(a.jobs.Len(), own.jobs.Len()-1)
		}
	}
	return n
}

// each calls f with every waiting job in the order they will be served, counted from 1.
func (l *line) each(f func(position int, r *record)) {
	var turn []*list.Element
	for e := l.ring.Front(); e != nil; e = e.Next() {
		turn = append(turn, e.Value.(*lane).jobs.Front())
	}
	for position := 1; len(turn) > 0; {
		left := turn[:0]
		for _, e := range turn {
			f(position, e.Value.(*record))
			position++
			if e = e.Next(); e != nil {
				left = append(left, e)
			}
		}
		turn = left
	}
}

func (l *line) oldest(now time.Time) time.Duration {
	var age time.Duration
	for e := l.ring.Front(); e != nil; e = e.Next() {
		age = max(age, now.Sub(e.Value.(*lane).jobs.Front().Value.(*record).submitted))
	}
	return age
}
