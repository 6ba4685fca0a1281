package memory

import (
	"cmp"
	"container/list"
	"slices"
	"time"

	"qr-gateway/gateway/queue"
)

// place is where a job waits.
type place struct {
	model string
	class queue.Class
}

func placeOf(j *queue.Job) place { return place{j.Model, j.Class} }

// line holds the waiting jobs of one place: a lane for each key. The keys take turns by start-time fair queueing: each key has a
// tag, the tokens that it has been served over its weight, and the key with the least goes next. Virtual time is the tag of
// the key served last; a key that comes (back) starts there, so that it gains nothing by staying away.
type line struct {
	lanes   map[string]*lane
	turns   []*lane            // in the order they are served
	idle    map[string]float64 // tags of keys without waiting jobs that are ahead of virtual time
	prune   int                // size of idle at which those behind are dropped
	virtual float64
	turn    int64     // of the lane that was put in last
	ages    list.List // of *record, oldest first
	waiting usage
	running int
	meter   meter
}

// lane holds the waiting jobs of one key, oldest first.
type lane struct {
	key  string
	tag  float64
	turn int64 // who of equal tags is first
	jobs []*record
}

func newLine() *line {
	return &line{lanes: map[string]*lane{}, idle: map[string]float64{}, prune: 64}
}

func byTurn(a, b *lane) int {
	if a.tag != b.tag {
		return cmp.Compare(a.tag, b.tag)
	}
	return cmp.Compare(a.turn, b.turn)
}

// put gives a lane its turn behind those with the same tag.
func (l *line) put(a *lane) {
	l.turn++
	a.turn = l.turn
	l.insert(a)
}

func (l *line) insert(a *lane) {
	at, _ := slices.BinarySearchFunc(l.turns, a, byTurn)
	l.turns = slices.Insert(l.turns, at, a)
}

// take takes a lane out of the turns; it may be put in again with another tag.
func (l *line) take(a *lane) {
	if at, found := slices.BinarySearchFunc(l.turns, a, byTurn); found {
		l.turns = slices.Delete(l.turns, at, at+1)
	}
}

// pushBack queues a new job behind those of its key.
func (l *line) pushBack(r *record) {
	a := l.lanes[r.job.Key]
	if a == nil {
		a = &lane{key: r.job.Key, tag: max(l.virtual, l.idle[r.job.Key])}
		delete(l.idle, a.key)
		l.lanes[a.key] = a
		l.put(a)
	} else {
		last := a.jobs[len(a.jobs)-1]
		r.mark = last.mark + last.charge
	}
	a.jobs = append(a.jobs, r)
	l.added(r)
}

// pushFront queues a job again that has had its turn: it goes next, and its key isn't charged for it.
func (l *line) pushFront(r *record) {
	key, a := r.job.Key, l.lanes[r.job.Key]
	if a == nil {
		a = &lane{key: key, tag: max(l.virtual, l.idle[key]-r.charge)}
		delete(l.idle, key)
		l.lanes[key] = a
	} else {
		l.take(a)
		a.tag = max(l.virtual, a.tag-r.charge)
		r.mark = a.jobs[0].mark - r.charge
	}
	if len(l.turns) > 0 {
		a.tag, a.turn = min(a.tag, l.turns[0].tag), min(0, l.turns[0].turn-1)
	}
	l.insert(a)
	a.jobs = slices.Insert(a.jobs, 0, r)
	l.added(r)
}

func (l *line) added(r *record) {
	l.waiting.add(&r.job, 1)
	e := l.ages.Back()
	for e != nil && e.Value.(*record).submitted.After(r.submitted) {
		e = e.Prev()
	}
	if e == nil {
		r.aged = l.ages.PushFront(r)
	} else {
		r.aged = l.ages.InsertAfter(r, e)
	}
	l.meter.start(time.Now())
}

// remove takes r out of its lane. The key keeps its turn unless it has nothing left.
func (l *line) remove(r *record) {
	a := l.lanes[r.job.Key]
	a.drop(r)
	if len(a.jobs) == 0 {
		l.take(a)
		delete(l.lanes, a.key)
		l.leave(a.key, a.tag)
	}
	l.ages.Remove(r.aged)
	r.aged = nil
	l.waiting.add(&r.job, -1)
	if l.waiting.jobs == 0 {
		l.meter.stop()
	}
}

// drop takes a job out of its lane. Most are at the head, which costs nothing even in a long lane.
func (a *lane) drop(r *record) {
	if a.jobs[0] == r {
		a.jobs[0] = nil
		a.jobs = a.jobs[1:]
		return
	}
	at := slices.Index(a.jobs, r)
	for _, later := range a.jobs[at+1:] {
		later.mark -= r.charge
	}
	a.jobs = slices.Delete(a.jobs, at, at+1)
}

// leave remembers the tag of a key without waiting jobs, as long as it means anything.
func (l *line) leave(key string, tag float64) {
	if tag <= l.virtual {
		delete(l.idle, key)
		return
	}
	l.idle[key] = tag
	if len(l.idle) < l.prune {
		return
	}
	for k, t := range l.idle {
		if t <= l.virtual {
			delete(l.idle, k)
		}
	}
	l.prune = max(64, 2*len(l.idle))
}

// serve charges r's key for a job that is about to leave for a node.
func (l *line) serve(r *record) {
	l.virtual = max(l.virtual, l.turns[0].tag)
	a := l.lanes[r.job.Key]
	l.take(a)
	a.tag = max(l.virtual, a.tag) + r.charge
	l.put(a)
}

// correct charges a key that much more, or less.
func (l *line) correct(key string, by float64) {
	a := l.lanes[key]
	if a == nil {
		l.leave(key, max(l.virtual, l.idle[key])+by)
		return
	}
	l.take(a)
	a.tag = max(l.virtual, a.tag+by)
	l.insert(a)
}

// oldest is the job that has waited longest, or nil.
func (l *line) oldest() *record {
	if e := l.ages.Front(); e != nil {
		return e.Value.(*record)
	}
	return nil
}

func (l *line) age(now time.Time) time.Duration {
	if r := l.oldest(); r != nil {
		return now.Sub(r.submitted)
	}
	return 0
}
