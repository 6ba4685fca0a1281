package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/health"
)

// Deps are what a guard works with.
type Deps struct {
	// Fallback serves under the policy of that name; the guard does not close it.
	Fallback entropy.Source
	// Events hears of transitions, or is nil.
	Events Events
	// Now and Jitter (from 0 up to 1) are the clock and the dice of the back-off; nil takes the real ones.
	Now    func() time.Time
	Jitter func() float64
}

// Guard is a source that checks another.
type Guard struct {
	name    string
	src     entropy.Source
	cfg     Config
	deps    Deps
	closed  atomic.Bool
	lates   atomic.Int32 // in a row; see late
	counts  counts
	bytes   outage // of draws
	numbers outage // of numbers: one going well does not hide the other failing

	caps     atomic.Pointer[entropy.Capabilities]
	baseline atomic.Pointer[Calibration]

	// mu guards what follows.
	mu      sync.Mutex
	monitor *health.Monitor
	alarm   alarm
	last    seen
	drift   drift
}

// New puts a guard around src, which it owns: Close closes both. An error is an *[entropy.Error].
func New(name string, src entropy.Source, cfg Config, deps Deps) (*Guard, error) {
	if err := cfg.Validate(); err != nil {
		return nil, &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "check options", Err: err}
	}
	if cfg.Policy == Fallback && deps.Fallback == nil {
		return nil, &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "policy fallback names no second source", Hint: "name it in fallback, e.g. fallback: system"}
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Jitter == nil {
		deps.Jitter = rand.Float64
	}
	g := &Guard{name: name, src: src, cfg: cfg, deps: deps, monitor: health.New(cfg.Config)}
	if cfg.CalibrationFile != "" {
		c, err := LoadCalibration(cfg.CalibrationFile)
		if err != nil {
			return nil, &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "load calibration_file", Hint: "measure one with `qr-gateway entropy test SOURCE --save-baseline FILE`", Err: err}
		}
		g.baseline.Store(c)
	}
	return g, nil
}

// Name is the source's, as configured.
func (g *Guard) Name() string { return g.name }

// Policy is the source's.
func (g *Guard) Policy() Policy { return g.cfg.Policy }

// Health is what the tests of the raw bytes work with.
func (g *Guard) Health() health.Config { return g.cfg.Config }

// Draw implements [entropy.Source]: the block of the source, or what the policy puts in its place.
func (g *Guard) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	own, done := g.share(ctx)
	defer done()
	b, reason, err := g.draw(own, buf)
	reason, err = g.late(ctx, own, reason, err)
	return g.conclude(ctx, buf, b, reason, err)
}

// conclude ends an outage or applies the policy.
func (g *Guard) conclude(ctx context.Context, buf []byte, b entropy.Block, reason Reason, err error) (entropy.Block, error) {
	if err != nil {
		return g.instead(ctx, buf, b.Discarded, reason, err)
	}
	if reason == ReasonNone {
		g.recovered(&g.bytes)
	}
	return b, nil
}

// draw asks the source itself. Without an error the block is to be used; a reason then says what was observed about it.
func (g *Guard) draw(ctx context.Context, buf []byte) (entropy.Block, Reason, error) {
	if reason, err := g.admit(ctx); err != nil {
		return entropy.Block{}, reason, err
	}
	asked := g.deps.Now()
	b, err := g.src.Draw(ctx, buf)
	return g.settle(ctx, asked, buf, b, err)
}

// settle judges what the source answered.
func (g *Guard) settle(ctx context.Context, asked time.Time, buf []byte, b entropy.Block, err error) (entropy.Block, Reason, error) {
	if err != nil {
		reason, err := g.failed(ctx, err)
		return entropy.Block{Discarded: b.Discarded}, reason, err
	}
	g.counts.latency.add(b.Arrived.Sub(b.Requested))
	reason, err := g.inspect(asked, buf, &b)
	if err != nil && !g.observes(reason) {
		g.counts.discard(len(buf))
		clear(buf)
		return entropy.Block{Discarded: b.Discarded + 1}, reason, err
	}
	if err != nil {
		g.failing(&g.bytes, reason, err)
	}
	g.counts.draws.Add(1)
	g.counts.bytes.Add(uint64(len(buf)))
	if b.Fallback {
		g.counts.fallbacks[ReasonMember].Add(1)
	}
	return b, reason, nil
}

// failed counts an error of the source. The caller's own end is none of the source's, and has no reason.
func (g *Guard) failed(ctx context.Context, err error) (Reason, error) {
	if ctx.Err() != nil {
		return ReasonNone, err
	}
	if _, ok := errors.AsType[*entropy.Error](err); !ok {
		err = &entropy.Error{Kind: entropy.KindTransport, Source: g.name, Message: "draw bytes", Err: err}
	}
	reason := reasonOfError(err)
	g.counts.errors[reason].Add(1)
	if reason.alarm() {
		g.raise(reason, err)
	}
	return reason, err
}

// instead applies the policy after a draw that gave nothing. spent is how many blocks came for it.
func (g *Guard) instead(ctx context.Context, buf []byte, spent int, reason Reason, err error) (entropy.Block, error) {
	if reason == ReasonNone || reason == ReasonClosed {
		return entropy.Block{Discarded: spent}, err
	}
	g.failing(&g.bytes, reason, err)
	if g.cfg.Policy != Fallback {
		return entropy.Block{Discarded: spent}, err
	}
	b, second := g.deps.Fallback.Draw(ctx, buf)
	b.Discarded += spent
	if second != nil {
		return entropy.Block{Discarded: b.Discarded}, g.bothFailed(ctx, err, second)
	}
	g.counts.fallbacks[reason].Add(1)
	b.Fallback = true
	return b, nil
}

func (g *Guard) bothFailed(ctx context.Context, first, second error) error {
	if ctx.Err() != nil {
		return second
	}
	return &entropy.Error{
		Kind: entropy.KindOf(first), Source: g.name, Message: "the source and its fallback both failed",
		Hint: "mend the source, or name a fallback that needs no network or device, such as system", Err: errors.Join(first, second),
	}
}

// Probe implements [entropy.Prober] for any source: one that can't be probed has no capabilities beyond its bytes.
func (g *Guard) Probe(ctx context.Context) (entropy.Capabilities, error) {
	p, ok := g.src.(entropy.Prober)
	if !ok {
		return entropy.Capabilities{}, nil
	}
	caps, err := p.Probe(ctx)
	if err != nil {
		return entropy.Capabilities{}, err
	}
	if want := g.cfg.ExpectDevice; want != "" && caps.Device != "" && caps.Device != want {
		return entropy.Capabilities{}, &entropy.Error{
			Kind: entropy.KindConfig, Source: g.name, Message: fmt.Sprintf("the device is %q, expect_device is %q", caps.Device, want),
			Hint: "connect the right device or change expect_device",
		}
	}
	g.caps.Store(&caps)
	return caps, nil
}

// Close implements io.Closer: it closes the source. Draws fail with [entropy.KindClosed] afterwards.
func (g *Guard) Close() error {
	if g.closed.Swap(true) {
		return nil
	}
	if c, ok := g.src.(io.Closer); ok {
		if err := c.Close(); err != nil {
			return fmt.Errorf("close entropy source %s: %w", g.name, err)
		}
	}
	return nil
}
