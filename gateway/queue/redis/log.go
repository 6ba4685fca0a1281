package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"qr-gateway/gateway/queue"
)

// Append implements [queue.Log].
func (q *Queue) Append(ctx context.Context, l queue.Lease, entries ...[]byte) error {
	args := []any{l.Job.ID, l.Epoch}
	for _, e := range entries {
		if len(e) > q.cfg.LogBytes {
			return fmt.Errorf("append to the log of job %s: %w", l.Job.ID, &queue.TooLargeError{What: "log entry", Size: len(e), Max: q.cfg.LogBytes})
		}
		args = append(args, e)
	}
	return q.asHolder(ctx, l, queue.Progress{}, func() (string, error) { return q.word(ctx, "append", args...) })
}

// batch is part of a log.
type batch struct {
	first   int64 // what the log begins with
	entries []queue.Entry
	more    bool // there are entries after these
	end     news
	born    string // when the job came: of a log that was forgotten and begun again it is another one
	upto    int64  // the sequence number that comes next
}

// follows says that b is a later part of the log that old is of. A server that has forgotten a job, or is a replica that was behind, may have
// another one by that name.
func (b *batch) follows(old *batch) bool { return b.born == old.born && b.upto >= old.upto }

// Read implements [queue.Log].
func (q *Queue) Read(ctx context.Context, id string, seq int64) (<-chan queue.Entry, error) {
	wake := make(chan struct{}, 1)
	if !q.subscribe(id, wake) {
		return nil, queue.ErrClosed
	}
	seq = max(1, seq)
	b, err := q.entries(ctx, id, seq)
	if err == nil && seq < b.first {
		err = fmt.Errorf("it begins with entry %d: %w", b.first, queue.ErrTrimmed)
	}
	if err != nil {
		q.unsubscribe(id, wake)
		q.waits.Done()
		return nil, fmt.Errorf("read the log of job %q from entry %d: %w", id, seq, err)
	}
	out := make(chan queue.Entry)
	go func() {
		defer q.waits.Done()
		defer close(out)
		defer q.unsubscribe(id, wake)
		q.pour(ctx, id, seq, b, wake, out)
	}()
	return out, nil
}

// subscribe asks to be woken when a log grows.
func (q *Queue) subscribe(id string, wake chan struct{}) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.waits.Add(1)
	q.readers[id] = append(q.readers[id], wake)
	return true
}

func (q *Queue) unsubscribe(id string, wake chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := slices.DeleteFunc(q.readers[id], func(c chan struct{}) bool { return c == wake })
	if q.readers[id] = left; len(left) == 0 {
		delete(q.readers, id)
	}
}

// grown wakes those who read a log.
func (q *Queue) grown(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, wake := range q.readers[id] {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// pour sends what is in a log until it has ended or is forgotten, also where its job is known again by then.
func (q *Queue) pour(ctx context.Context, id string, seq int64, b batch, wake <-chan struct{}, out chan<- queue.Entry) {
	poll := time.NewTicker(q.cfg.Poll)
	defer poll.Stop()
	for {
		for _, e := range b.ending(seq) {
			select {
			case out <- e:
			case <-ctx.Done():
				return
			case <-q.stop:
				return
			}
			if seq = e.Seq + 1; e.End != nil {
				return
			}
		}
		if !b.more && !q.wait(ctx, wake, poll.C) {
			return
		}
		next, err := q.entries(ctx, id, seq)
		switch {
		case errors.Is(err, queue.ErrUnavailable):
			b = batch{born: b.born, upto: b.upto}
		case err != nil || !next.follows(&b):
			return
		default:
			b = next
		}
	}
}

// ending is the batch with the log's last entry, if this is all of it.
func (b *batch) ending(seq int64) []queue.Entry {
	if b.more || !b.end.State.Terminal() {
		return b.entries
	}
	if n := len(b.entries); n > 0 {
		seq = b.entries[n-1].Seq + 1
	}
	end := b.end.Status
	return append(b.entries, queue.Entry{Seq: seq, Epoch: end.Epoch, End: &end})
}

func (q *Queue) wait(ctx context.Context, wake <-chan struct{}, poll <-chan time.Time) bool {
	select {
	case <-wake:
		return true
	case <-poll:
		return true
	case <-ctx.Done():
		return false
	case <-q.stop:
		return false
	}
}

// entries reads some of a log.
func (q *Queue) entries(ctx context.Context, id string, seq int64) (batch, error) {
	reply, err := q.run(ctx, "read", id, seq, q.id)
	if err != nil {
		return batch{}, err
	}
	if reply == nil {
		return batch{}, queue.ErrUnknown
	}
	v := list(reply)
	if len(v) != 7 {
		return batch{}, errors.New("what the queue's server answers is not whole")
	}
	b := batch{first: number(v[0]), more: number(v[3]) == 1, born: text(v[5]), upto: number(v[6])}
	if b.end, err = readNews(list(v[4])); err != nil {
		return batch{}, err
	}
	for i, e := range list(v[2]) {
		epoch, data, _ := strings.Cut(text(e), ":")
		n, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return batch{}, fmt.Errorf("read the epoch of a log entry: %w", err)
		}
		b.entries = append(b.entries, queue.Entry{Seq: number(v[1]) + int64(i), Epoch: n, Data: []byte(data)})
	}
	return b, nil
}
