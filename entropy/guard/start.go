package guard

import (
	"context"
	"errors"
	"fmt"

	"qr-gateway/entropy"
)

// Start probes the source, runs the start-up test and, where configured, measures the baseline. An option that can't work, or a refusal
// of the source, is an error. A source that does not answer or fails its test is one only if it is required: it starts out alarmed.
func (g *Guard) Start(ctx context.Context) error {
	if _, err := g.Probe(ctx); err != nil {
		return g.startFailed(ctx, reasonOfError(err), err)
	}
	if err := g.Recheck(ctx); err != nil {
		return g.startFailed(ctx, reasonOfError(err), err)
	}
	if g.cfg.CalibrationBlocks == 0 {
		return nil
	}
	if _, err := g.Calibrate(ctx, g.cfg.CalibrationBlocks, g.cfg.CalibrationBlockBytes); err != nil {
		return fmt.Errorf("calibrate entropy source %s: %w", g.name, err)
	}
	return nil
}

func (g *Guard) startFailed(ctx context.Context, reason Reason, err error) error {
	switch kind := entropy.KindOf(err); {
	case kind == entropy.KindConfig, kind == entropy.KindRefused, kind == entropy.KindClosed:
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		return err
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

// Recheck runs the start-up test now, whatever the state, and ends an alarm if it passes. It is for the start and for operators.
func (g *Guard) Recheck(ctx context.Context) error {
	g.mu.Lock()
	if g.alarm.mode == ModeRecovering {
		g.mu.Unlock()
		return &entropy.Error{Kind: entropy.KindHealth, Source: g.name, Message: "a start-up test is running already", Hint: "wait for its result"}
	}
	g.alarm.mode = ModeRecovering
	g.mu.Unlock()
	_, err := g.recover(ctx)
	if err == nil {
		g.recovered(&g.bytes)
	}
	return err
}

// startUp draws what the start-up test takes, tests it and discards it. The reason is none when the caller's context ended.
func (g *Guard) startUp(ctx context.Context) (Reason, error) {
	g.mu.Lock()
	g.monitor.Restart()
	g.last = seen{}
	g.mu.Unlock()
	left := g.cfg.StartUpSamples
	chunk := left
	if caps := g.caps.Load(); caps != nil && caps.MaxDraw > 0 {
		chunk = min(chunk, caps.MaxDraw)
	}
	buf := make([]byte, chunk)
	defer clear(buf)
	for left > 0 {
		part := buf[:min(left, chunk)]
		if reason, err := g.startUpPart(ctx, part); err != nil {
			return reason, err
		}
		left -= len(part)
	}
	return ReasonNone, nil
}

func (g *Guard) startUpPart(ctx context.Context, part []byte) (Reason, error) {
	asked := g.deps.Now()
	b, err := g.src.Draw(ctx, part)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return ReasonNone, err
		}
		reason := reasonOfError(err)
		g.counts.errors[reason].Add(1)
		return reason, err
	}
	g.counts.discard(len(part))
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.judge(asked, part, &b)
}
