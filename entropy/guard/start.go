package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/health"
)

// Start probes the source and runs the start-up test. An option that can't work, or a refusal of the source, is an error. A source that does
// not answer or fails its test is one only if it is required: it starts out alarmed.
func (g *Guard) Start(ctx context.Context) error {
	caps, err := g.Probe(ctx)
	if err == nil {
		err = g.fits(caps.Device)
	}
	if err == nil {
		err = g.Recheck(ctx)
	}
	if err != nil {
		return g.startFailed(ctx, reasonOfError(err), err)
	}
	return nil
}

// fits refuses a baseline of another device.
func (g *Guard) fits(device string) error {
	c := g.baseline.Load()
	if c == nil {
		return nil
	}
	if err := c.fits(device); err != nil {
		return &entropy.Error{Kind: entropy.KindConfig, Source: g.name, Message: "use baseline", Err: err, Hint: "connect that device or measure this one"}
	}
	return nil
}

// Baseline measures the baseline where calibration_blocks asks for one. A source that can't be measured is not to be used: without its
// baseline its numbers would be wrong.
func (g *Guard) Baseline(ctx context.Context) error {
	if g.cfg.CalibrationBlocks == 0 {
		return nil
	}
	_, err := g.Calibrate(ctx, g.cfg.CalibrationBlocks, g.cfg.CalibrationBlockBytes)
	if err != nil {
		return fmt.Errorf("measure the baseline of entropy source %s (calibration_blocks; a calibration_file needs no measuring): %w", g.name, err)
	}
	return nil
}

func (g *Guard) startFailed(ctx context.Context, reason Reason, err error) error {
	switch kind := entropy.KindOf(err); {
	case kind == entropy.KindConfig, kind == entropy.KindRefused, kind == entropy.KindClosed:
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		return err
	case ctx.Err() != nil:
		reason = ReasonTimeout
	}
	if g.cfg.Required {
		return fmt.Errorf("start required entropy source %s: %w", g.name, err)
	}
	g.mu.Lock()
	if g.cfg.Policy != Observe && !g.alarm.out() {
		g.latch(reason, err)
	}
	g.mu.Unlock()
	g.failing(&g.bytes, reason, err)
	return nil
}

// Recheck runs the start-up test now and ends an alarm if it passes. It is for the start and for operators. A source that is not alarmed
// goes on serving meanwhile.
func (g *Guard) Recheck(ctx context.Context) error {
	if g.closed.Load() {
		return g.closedError()
	}
	g.mu.Lock()
	was := g.alarm.mode
	if was == ModeAlarmed {
		g.alarm.mode = ModeRecovering
	}
	g.mu.Unlock()
	if was == ModeRecovering {
		return &entropy.Error{Kind: entropy.KindHealth, Source: g.name, Message: "a start-up test is running already", Hint: "wait for its result"}
	}
	if was == ModeAlarmed {
		if _, err := g.recover(ctx); err != nil {
			return err
		}
		g.recovered(&g.bytes)
		return nil
	}
	_, err := g.startUp(ctx)
	return err
}

// startUp draws what the start-up test takes, tests it and discards it. The reason is none when the caller's context ended.
func (g *Guard) startUp(ctx context.Context) (Reason, error) {
	limited, cancel := context.WithTimeout(ctx, g.cfg.RecoverTimeout)
	defer cancel()
	left := g.cfg.StartUpSamples
	chunk := left
	if caps := g.caps.Load(); caps != nil && caps.MaxDraw > 0 {
		chunk = min(chunk, caps.MaxDraw)
	}
	buf, m := make([]byte, chunk), health.New(g.cfg.Config)
	defer clear(buf)
	for left > 0 {
		part := buf[:min(left, chunk)]
		reason, err := g.startUpPart(limited, m, part)
		if ctx.Err() != nil {
			return ReasonNone, fmt.Errorf("test entropy source %s: %w", g.name, ctx.Err())
		}
		if err != nil {
			return reason, err
		}
		left -= len(part)
	}
	return ReasonNone, nil
}

func (g *Guard) startUpPart(ctx context.Context, m *health.Monitor, part []byte) (Reason, error) {
	asked := g.deps.Now()
	b, err := g.src.Draw(ctx, part)
	if err == nil {
		g.counts.discard(len(part))
		if err := g.fits(b.Device); err != nil && !b.Fallback {
			return ReasonOtherDevice, err
		}
		return g.startUpJudge(asked, m, part, &b)
	}
	if ctx.Err() != nil {
		err = &entropy.Error{Kind: entropy.KindTimeout, Source: g.name, Message: fmt.Sprintf("no bytes for the start-up test within %v", g.cfg.RecoverTimeout), Hint: "see whether the source answers at all, or raise recover_timeout", Err: err}
	}
	reason := reasonOfError(err)
	g.counts.errors[reason].Add(1)
	if reason.alarm() {
		g.raise(reason, err)
	}
	return reason, err
}

func (g *Guard) startUpJudge(asked time.Time, m *health.Monitor, part []byte, b *entropy.Block) (Reason, error) {
	g.mu.Lock()
	reason, err := g.judge(asked, m, part, b)
	g.mu.Unlock()
	if err != nil && g.observes(reason) {
		g.failing(&g.bytes, reason, err)
		return ReasonNone, nil
	}
	return reason, err
}
