package link

import (
	"time"

	"qr-gateway/gateway/link/linkpb"
)

// outbox holds the frames of one run that the gateway has not taken. The mutex of its conn guards it.
type outbox struct {
	run     run
	frames  []*linkpb.Frame // as they came; those that are sent first
	sent    int             // how many of them, on the stream that is up
	taken   int64           // by the gateway, up to this seq
	listed  bool            // has a turn in the line of those that have something to send
	err     error           // why nothing is taken any more
	since   time.Time       // of err
	changed chan struct{}   // closed at the next change; nil while nobody waits
}

func (b *outbox) full() bool { return len(b.frames) >= window }

func (b *outbox) unsent() bool { return b.sent < len(b.frames) }

// wait returns what is closed at the next change.
func (b *outbox) wait() <-chan struct{} {
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

func (b *outbox) tell() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// next is the frame to send. There is one.
func (b *outbox) next() *linkpb.Frame {
	b.sent++
	return b.frames[b.sent-1]
}

// take drops what the gateway has taken.
func (b *outbox) take(seq int64) {
	n := 0
	for n < len(b.frames) && b.frames[n].Seq <= seq {
		b.frames[n] = nil
		n++
	}
	b.frames = b.frames[n:]
	b.sent = max(b.sent-n, 0)
	b.taken = max(b.taken, seq)
	b.tell()
}

// fail drops everything.
func (b *outbox) fail(err error, now time.Time) {
	b.frames, b.sent, b.err, b.since = nil, 0, err, now
	b.tell()
}
