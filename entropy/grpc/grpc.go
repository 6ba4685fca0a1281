// Package grpc draws from an entropy server over gRPC: one that speaks the published protocol, or any other whose methods and fields are
// declared. It passes bytes, knows no generated code, and checks what comes: its length, and that it answers this very request. Design and
// states are in design.md; the breaker that guards the link is in a package of its own.
//
// A [Source] is safe for concurrent use. It owns the connection, one reader goroutine per stream and one per call; Close ends them and
// waits. A draw that its caller leaves, or that takes too long, is never answered later: its bytes are dropped.
package grpc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc/breaker"
)

// Deps are what a source takes from outside; all may be nil.
type Deps struct {
	Observer Observer
	Now      func() time.Time
	Dice     func() float64 // uniform in [0, 1); for the breaker's jitter
}

// Source is an entropy server. It implements [entropy.Source], [entropy.Numberer], [entropy.Ahead] and [entropy.Prober].
type Source struct {
	name     string
	cfg      Config
	key      Secret
	observer Observer
	now      func() time.Time
	breaker  *breaker.Breaker
	line     *line
	bytes    asker
	numbers  asker // nil: the server makes none
	slots    chan struct{}
	requests atomic.Uint64 // numbers given to requests
	hold     atomic.Int64  // nanoseconds since 1970 until which a used-up quota keeps us from asking
}

// Open checks the configuration and the files it names. It does not connect: that happens at the first draw or probe.
func Open(_ context.Context, name string, cfg Config, d Deps) (*Source, error) {
	fail := func(err error) (*Source, error) {
		return nil, &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "open", Err: err}
	}
	if err := cfg.Validate(); err != nil {
		return fail(err)
	}
	cfg = cfg.resolve()
	if d.Observer == nil {
		d.Observer = discard{}
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	key, err := cfg.key()
	if err != nil {
		return fail(err)
	}
	dial, err := dialer(cfg, key, d.Now())
	if err != nil {
		return fail(err)
	}
	s := &Source{name: name, cfg: cfg, key: Secret(key), observer: d.Observer, now: d.Now, line: newLine(dial), slots: make(chan struct{}, slots(cfg))}
	s.breaker, err = breaker.New(cfg.Breaker, breaker.Deps{Now: d.Now, Dice: d.Dice, Changed: func(e breaker.Event) { d.Observer.Changed(name, e) }})
	if err != nil {
		return fail(err)
	}
	s.wire()
	return s, nil
}

// slots is how many requests may be under way: one on a stream whose server sends no number back.
func slots(c Config) int {
	if c.Mode == ModeBidi && c.Echo == EchoNone {
		return 1
	}
	return c.MaxInFlight
}

// wire chooses how bytes and numbers are asked for.
func (s *Source) wire() {
	c := s.cfg
	budget := func() time.Duration { return s.breaker.Timeout(0) }
	switch c.Mode {
	case ModeUnary:
		s.bytes = &calls{s.line, c.Method, false}
	case ModeServer:
		s.bytes = &calls{s.line, c.Stream, true}
	default:
		echo := c.Fields.echoOf
		if c.Echo == EchoNone {
			echo = nil
		}
		s.bytes = newPipe(s.line, c.Stream, echo, budget)
	}
	switch {
	case c.Mode == ModeBidi && c.NumberStream != "":
		s.numbers = newPipe(s.line, c.NumberStream, drawEcho, budget)
	case c.NumberMethod != "":
		s.numbers = &calls{s.line, c.NumberMethod, false}
	}
}

// Draw implements [entropy.Source].
func (s *Source) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	b := entropy.Block{Bytes: buf, Source: s.name, Class: s.cfg.Class}
	if err := s.admit(ctx, len(buf)); err != nil {
		return entropy.Block{}, err
	}
	size := len(buf)
	if s.cfg.MaxDraw > 0 {
		size = s.cfg.MaxDraw
	}
	for rest := buf; len(rest) > 0; b.Shots++ {
		n := min(size, len(rest))
		if err := s.shot(ctx, rest[:n], &b); err != nil {
			return entropy.Block{}, err
		}
		rest = rest[n:]
	}
	if b.Shots == 0 { // nothing was asked for
		b.Requested, b.Sequence = s.now(), s.requests.Add(1)
		b.Arrived = b.Requested
	}
	return b, nil
}

// admit refuses what can't be asked.
func (s *Source) admit(ctx context.Context, n int) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("draw %d bytes from %s: %w", n, s.name, ctx.Err())
	case s.line.isClosed():
		return s.fault(errClosed).err
	case n > maxDraw:
		return &entropy.Error{
			Kind: entropy.KindConfig, Source: s.name, Message: fmt.Sprintf("%d bytes in one draw are over the limit of %d", n, maxDraw),
			Hint: "draw less at a time",
		}
	case s.least(n) > s.cfg.Breaker.Timeout:
		return &entropy.Error{
			Kind: entropy.KindConfig, Source: s.name, Message: fmt.Sprintf("%d bytes at %v bytes per second take longer than timeout %v", n, s.cfg.Rate, s.cfg.Breaker.Timeout),
			Hint: "raise timeout, or draw less at a time",
		}
	}
	return nil
}

// shot fills buf with one request.
func (s *Source) shot(ctx context.Context, buf []byte, b *entropy.Block) error {
	limit := s.limit(len(buf))
	return s.call(ctx, s.bytes, len(buf), func(seq int64) request {
		return request{seq: seq, msg: s.cfg.Fields.encodeRequest(len(buf), seq), limit: limit}
	}, func(seq int64, a answer) error {
		return s.accept(seq, a, buf, b)
	})
}

// limit is what the answer with n bytes may have in all.
func (s *Source) limit(n int) int { return payloadSize(s.cfg.Payload, n) + 1024 }

// accept checks an answer and fills buf from it.
func (s *Source) accept(seq int64, a answer, buf []byte, b *entropy.Block) error {
	r, err := s.cfg.Fields.decode(a.buf.ReadOnlyData())
	if err != nil {
		return &protocolError{err.Error()}
	}
	echoed := s.cfg.Echo == EchoSequence
	if echoed && r.echo != seq {
		return s.wrongEcho(seq, r)
	}
	if err := unpack(s.cfg.Payload, buf, r.data); err != nil {
		if r.odd != "" {
			return protocolf("%v; %s", err, r.odd)
		}
		return &protocolError{err.Error()}
	}
	if b.Requested.IsZero() { // of several shots, the first; of several attempts, the one that was answered
		b.Requested = a.sent
	}
	b.Sequence, b.Arrived, b.Echoed, b.Device = uint64(seq), a.at, echoed, r.device
	if b.ServerTime.IsZero() || r.time.Before(b.ServerTime) { // of several shots, the oldest
		b.ServerTime = r.time
	}
	return nil
}

func (s *Source) wrongEcho(seq int64, r reply) error {
	if r.echo == 0 {
		return protocolf("the server does not send the number of the request back; declare echo: none if it never does")
	}
	return protocolf("the answer is to request %d, asked was %d", r.echo, seq)
}

// Close implements io.Closer.
func (s *Source) Close() error {
	s.line.close()
	return nil
}

// Status says how the link is.
func (s *Source) Status() breaker.Status { return s.breaker.Status() }

// Force opens or closes the breaker by order.
func (s *Source) Force(f breaker.Force) { s.breaker.Force(f) }

// call makes one call of up to 1+retries attempts. ask makes the request, take uses the answer.
func (s *Source) call(ctx context.Context, to asker, n int, ask func(seq int64) request, take func(seq int64, a answer) error) error {
	began := s.now()
	if err := s.held(began); err != nil {
		return err
	}
	c, err := s.breaker.Begin()
	if err != nil {
		err := &entropy.Error{Kind: entropy.KindOpen, Source: s.name, Message: "not asked", Err: err, Hint: "the server failed several times in a row; it is tried again by itself"}
		s.observer.Drawn(s.name, Report{Kind: entropy.KindOpen, Err: err})
		return err
	}
	r := Report{Trial: c.Trial}
	var f *fault
	for r.Attempts = 1; ; r.Attempts++ {
		f = s.attempt(ctx, c, to, n, r.Attempts > 1, ask, take)
		if f == nil || !f.again || r.Attempts > s.cfg.Retries || ctx.Err() != nil {
			break
		}
	}
	if s.breaker.End(c, f.outcome()) && f.late {
		s.line.renew() // the connection may be dead without knowing
	}
	r.Latency = s.now().Sub(began)
	if f != nil {
		r.Err, r.Kind = f.err, entropy.KindOf(f.err)
	}
	s.observer.Drawn(s.name, r)
	if f != nil {
		return f.err
	}
	return nil
}

// attempt sends one request and takes its answer.
func (s *Source) attempt(ctx context.Context, c breaker.Call, to asker, n int, again bool, ask func(int64) request, take func(int64, answer) error) *fault {
	budget := s.breaker.Timeout(s.least(n))
	limited, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-limited.Done():
		return s.ended(ctx, c, budget, limited.Err())
	}
	seq := int64(s.requests.Add(1))
	q := ask(seq)
	if q.wait = c.Trial; q.wait || again { // the trial must really ask, whatever pause there is between attempts to connect
		s.line.renewFailed()
	}
	p, err := to.send(limited, q)
	if err != nil {
		return s.ended(ctx, c, budget, err)
	}
	a := p.await(limited, ctx)
	defer a.free()
	if a.err != nil {
		return s.ended(ctx, c, budget, a.err)
	}
	s.breaker.Sample(c, a.at.Sub(a.sent))
	if err := take(seq, a); err != nil {
		p.wrong(err)
		return s.fault(err)
	}
	return nil
}

// least is what a draw of n bytes takes at least, with a margin, where the rate is declared.
func (s *Source) least(n int) time.Duration {
	if s.cfg.Rate == 0 {
		return 0
	}
	return time.Duration(2 * float64(n) / s.cfg.Rate * float64(time.Second))
}

// ended makes a fault of an attempt that brought no answer. One that took all of its time is counted with that time.
func (s *Source) ended(ctx context.Context, c breaker.Call, budget time.Duration, err error) *fault {
	if ctx.Err() != nil {
		return &fault{err: fmt.Errorf("draw from %s: %w", s.name, ctx.Err()), gone: true}
	}
	f := s.fault(err)
	if f.late {
		s.breaker.Sample(c, budget)
	}
	return f
}

// held refuses while a used-up quota keeps us from asking.
func (s *Source) held(now time.Time) error {
	until := s.hold.Load()
	if until == 0 || now.UnixNano() >= until {
		return nil
	}
	err := &entropy.Error{
		Kind: entropy.KindQuota, Source: s.name, Message: "not asked: the quota is used up",
		Hint: fmt.Sprintf("asked again in %v", time.Unix(0, until).Sub(now).Round(time.Millisecond)), Err: errHeld,
	}
	s.observer.Drawn(s.name, Report{Kind: entropy.KindQuota, Err: err})
	return err
}

var errHeld = errors.New("waiting for the quota")
