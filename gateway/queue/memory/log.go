package memory

import (
	"context"
	"fmt"
	"slices"

	"qr-gateway/gateway/queue"
)

// ledger is the log of one job. The queue's mutex guards it.
type ledger struct {
	entries []queue.Entry // the newest
	bytes   int
	last    int64 // the sequence number of the last entry
	readers []chan struct{}
}

// wake tells the readers that there is more.
func (l *ledger) wake() {
	for _, r := range l.readers {
		select {
		case r <- struct{}{}:
		default:
		}
	}
}

// Append implements [queue.Log].
func (q *Queue) Append(_ context.Context, lease queue.Lease, entries ...[]byte) error {
	for _, e := range entries {
		if len(e) > q.cfg.LogBytes {
			return fmt.Errorf("append to the log of job %s: %w", lease.Job.ID, &queue.TooLargeError{What: "log entry", Size: len(e), Max: q.cfg.LogBytes})
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	r, err := q.holder(lease)
	if err != nil {
		return err
	}
	l := &r.log
	for _, e := range entries {
		l.last++
		l.bytes += len(e)
		l.entries = append(l.entries, queue.Entry{Seq: l.last, Epoch: lease.Epoch, Data: slices.Clone(e)})
	}
	l.trim(q.cfg.LogEntries, q.cfg.LogBytes)
	l.wake()
	return nil
}

// trim drops the oldest entries until the rest is within the bounds.
func (l *ledger) trim(entries, bytes int) {
	n := 0
	for len(l.entries)-n > entries || l.bytes > bytes {
		l.bytes -= len(l.entries[n].Data)
		n++
	}
	l.entries = slices.Delete(l.entries, 0, n)
}

// Read implements [queue.Log].
func (q *Queue) Read(ctx context.Context, id string, seq int64) (<-chan queue.Entry, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.records[id]
	if r == nil {
		return nil, fmt.Errorf("read the log of job %q: %w", id, queue.ErrUnknown)
	}
	seq = max(1, seq)
	if first := r.log.last - int64(len(r.log.entries)) + 1; seq < first {
		return nil, fmt.Errorf("read the log of job %q from entry %d: it begins with %d: %w", id, seq, first, queue.ErrTrimmed)
	}
	wake, out := make(chan struct{}, 1), make(chan queue.Entry)
	r.log.readers = append(r.log.readers, wake)
	go q.read(ctx, r, seq, wake, out)
	return out, nil
}

// read sends what is in a log until it has ended. It owns out.
func (q *Queue) read(ctx context.Context, r *record, seq int64, wake chan struct{}, out chan<- queue.Entry) {
	defer close(out)
	defer q.unread(r, wake)
	for {
		batch := q.entries(r, seq)
		for _, e := range batch {
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
			if e.End != nil {
				return
			}
			seq = e.Seq + 1
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
	}
}

// entries are those from seq on, with the last one if the job has ended.
func (q *Queue) entries(r *record, seq int64) []queue.Entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := &r.log
	have := int64(len(l.entries))
	skip := min(max(0, seq-(l.last-have+1)), have)
	batch := slices.Clone(l.entries[skip:])
	if r.state.Terminal() {
		end := q.status(r)
		batch = append(batch, queue.Entry{Seq: max(l.last+1, seq), Epoch: r.epoch, End: &end})
	}
	return batch
}

func (q *Queue) unread(r *record, wake chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.log.readers = slices.DeleteFunc(r.log.readers, func(c chan struct{}) bool { return c == wake })
}
