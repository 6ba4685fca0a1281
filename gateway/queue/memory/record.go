package memory

import (
	"container/list"
	"fmt"
	"slices"
	"time"

	"qr-gateway/gateway/queue"
)

// record is one job. The queue's mutex guards it.
type record struct {
	job       queue.Job
	state     queue.State
	epoch     int64
	attempts  int // lost so far
	reason    string
	submitted time.Time
	ended     time.Time
	watchers  []*watcher
	log       ledger
	charge    float64 // what its key is charged when it leaves for a node

	// While it waits.
	mark     float64       // where its turn starts, from the start of its lane's other jobs
	aged     *list.Element // in its line's ages
	position int           // as last published

	// While it runs.
	node    string
	expires time.Time
	seq     int64
	taken   int       // tokens, as the node last said
	moved   time.Time // when seq last changed
	lost    chan struct{}
}

// transitions is the state machine: what may follow each state. Terminal states have no entry.
func transitions(from queue.State) []queue.State {
	switch from {
	case queue.StateQueued:
		return []queue.State{queue.StateLeased, queue.StateCancelled, queue.StateExpired}
	case queue.StateLeased:
		return []queue.State{queue.StateStreaming, queue.StateQueued, queue.StateDone, queue.StateFailed, queue.StateCancelled}
	case queue.StateStreaming:
		return []queue.State{queue.StateDone, queue.StateFailed, queue.StateCancelled}
	default:
		return nil
	}
}

// move is the compare-and-set that every change of state goes through. It keeps the books of both states, but publishes
// nothing: the caller does when the record is whole.
func (q *Queue) move(r *record, to queue.State) error {
	if !slices.Contains(transitions(r.state), to) {
		return fmt.Errorf("move job %s: it is %s and can't become %s", r.job.ID, r.state, to)
	}
	switch r.state {
	case queue.StateQueued:
		q.leaveLine(r)
	case queue.StateLeased, queue.StateStreaming:
		if to != queue.StateStreaming {
			q.leaveNode(r)
		}
	default:
	}
	r.state = to
	return nil
}

// finish moves r to a terminal state and publishes it. It reports whether r was live.
func (q *Queue) finish(r *record, to queue.State, reason string) bool {
	if q.move(r, to) != nil {
		return false
	}
	r.reason, r.ended = reason, time.Now()
	r.job.Payload = nil
	q.finished = append(q.finished, r)
	if r.epoch == 0 { // it never ran, so whoever sends it again is the first
		q.freeRepeat(r)
	}
	q.count(to)
	q.publish(r)
	r.log.wake()
	return true
}

// settle charges r's key for what the run has really taken, in the place of what it was thought to take.
func (q *Queue) settle(r *record, tokens int) {
	q.line(r).correct(r.job.Key, r.job.Charge(tokens)-r.charge)
	q.stats.Tokens += int64(tokens)
}

func (q *Queue) count(s queue.State) {
	switch s {
	case queue.StateDone:
		q.stats.Done++
	case queue.StateFailed:
		q.stats.Failed++
	case queue.StateCancelled:
		q.stats.Cancelled++
	case queue.StateExpired:
		q.stats.Expired++
	default:
	}
}

// cancel ends r and tells its node. It reports whether r was live.
func (q *Queue) cancel(r *record, reason string) bool {
	lost, taken := r.lost, r.taken
	if !q.finish(r, queue.StateCancelled, reason) {
		return false
	}
	if lost != nil {
		q.settle(r, taken)
		close(lost)
	}
	return true
}

// lose takes the lease from a node that has not answered.
func (q *Queue) lose(r *record, why string) {
	q.stats.LeasesLost++
	lost, taken := r.lost, r.taken
	if r.state == queue.StateStreaming {
		q.finish(r, queue.StateFailed, why)
		q.settle(r, taken)
	} else {
		q.retry(r, why)
	}
	close(lost)
}

// retry queues r again at the head, or fails it when it has lost its last attempt.
func (q *Queue) retry(r *record, why string) {
	r.attempts++
	if r.attempts >= q.cfg.Attempts {
		taken := r.taken
		q.finish(r, queue.StateFailed, why)
		q.settle(r, taken)
		return
	}
	q.requeue(r, why)
}

// requeue puts a leased job at the head of its key's lane, and the key first: it has had its turn already.
func (q *Queue) requeue(r *record, why string) {
	if q.move(r, queue.StateQueued) != nil {
		return
	}
	q.stats.Requeued++
	r.reason, r.position = why, q.ahead(placeOf(&r.job))+1
	q.line(r).pushFront(r)
	q.enter(r)
	q.offer(r)
	q.publish(r)
}

// leaveNode forgets the lease of a running job.
func (q *Queue) leaveNode(r *record) {
	delete(q.running, r.job.ID)
	q.line(r).running--
	r.node, r.lost, r.seq, r.taken = "", nil, 0, 0
}

// forget drops finished jobs that are too old or too many.
func (q *Queue) forget(now time.Time) {
	n := max(0, len(q.finished)-q.cfg.KeepJobs)
	for n < len(q.finished) && now.Sub(q.finished[n].ended) >= q.cfg.Keep {
		n++
	}
	for _, r := range q.finished[:n] {
		delete(q.records, r.job.ID)
		q.freeRepeat(r)
	}
	q.finished = slices.Delete(q.finished, 0, n)
}

// freeRepeat forgets r's idempotency key, unless it is that of a later job by now.
func (q *Queue) freeRepeat(r *record) {
	if key := repeatOf(&r.job); q.repeats[key] == r.job.ID {
		delete(q.repeats, key)
	}
}
