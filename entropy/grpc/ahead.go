package grpc

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc/breaker"
)

// Begin implements [entropy.Ahead]: the nonce goes out as the number of the request and must come back. It asks only where nothing has to
// be waited for: not before there is a stream, nor while the breaker is anything but closed, nor from a server that sends no number back.
func (s *Source) Begin(n int, nonce uint64) entropy.Ticket {
	if n <= 0 || n > maxDraw || s.cfg.MaxDraw > 0 && n > s.cfg.MaxDraw || nonce == 0 || nonce > math.MaxInt64 || s.cfg.Echo == EchoNone {
		return nil
	}
	if s.line.isClosed() || s.held(s.now()) != nil || !s.bytes.ready(s.limit(n)) || s.breaker.Status().State != breaker.Closed {
		return nil
	}
	select {
	case s.slots <- struct{}{}:
	default:
		return nil
	}
	t := s.begin(n, nonce)
	if t == nil {
		<-s.slots
		return nil
	}
	return t
}

// begin sends the request; the slot is held until the ticket ends.
func (s *Source) begin(n int, nonce uint64) *ticket {
	c, err := s.breaker.Begin()
	if err != nil {
		return nil
	}
	budget := s.breaker.Timeout(s.least(n))
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	seq := int64(nonce)
	t := &ticket{s: s, n: n, nonce: nonce, call: c, cancel: cancel, requested: s.now()}
	t.pending, err = s.bytes.send(ctx, request{seq: seq, msg: s.cfg.Fields.encodeRequest(n, seq), limit: s.limit(n)})
	if err != nil {
		cancel()
		s.breaker.End(c, s.fault(err).outcome())
		return nil
	}
	return t
}

// ticket is one request that was sent ahead.
type ticket struct {
	s         *Source
	n         int
	nonce     uint64
	call      breaker.Call
	cancel    context.CancelFunc
	pending   *pending
	requested time.Time
	once      sync.Once
}

// end gives back what the ticket holds.
func (t *ticket) end(f *fault) {
	t.once.Do(func() {
		t.cancel()
		if t.s.breaker.End(t.call, f.outcome()) && f.late {
			t.s.line.renew()
		}
		<-t.s.slots
	})
}

// Redeem implements [entropy.Ticket].
func (t *ticket) Redeem(ctx context.Context, buf []byte) (entropy.Block, error) {
	s := t.s
	if len(buf) != t.n {
		t.Drop()
		return entropy.Block{}, &entropy.Error{Kind: entropy.KindConfig, Source: s.name, Message: fmt.Sprintf("%d bytes were asked for ahead, %d are wanted", t.n, len(buf))}
	}
	budget := s.breaker.Timeout(s.least(t.n))
	limited, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	a := t.pending.await(limited, ctx)
	defer a.free()
	b := entropy.Block{Bytes: buf, Source: s.name, Class: s.cfg.Class, Requested: t.requested, Shots: 1, Pipelined: true, Nonce: t.nonce}
	f := t.take(ctx, budget, a, buf, &b)
	t.end(f)
	r := Report{Latency: s.now().Sub(t.requested), Attempts: 1}
	if f != nil {
		r.Err, r.Kind = f.err, entropy.KindOf(f.err)
	}
	s.observer.Drawn(s.name, r)
	if f != nil {
		return entropy.Block{}, f.err
	}
	b.Sequence = s.requests.Add(1) // on the wire it is the nonce
	return b, nil
}

func (t *ticket) take(ctx context.Context, budget time.Duration, a answer, buf []byte, b *entropy.Block) *fault {
	if a.err != nil {
		return t.s.ended(ctx, t.call, budget, a.err)
	}
	t.s.breaker.Sample(t.call, a.at.Sub(a.sent))
	if err := t.s.accept(int64(t.nonce), a, buf, b); err != nil {
		t.pending.wrong(err)
		return t.s.fault(err)
	}
	return nil
}

// Drop implements [entropy.Ticket].
func (t *ticket) Drop() {
	t.once.Do(func() {
		t.pending.giveUp(false)
		t.cancel()
		t.s.breaker.End(t.call, breaker.Excluded)
		<-t.s.slots
	})
}
