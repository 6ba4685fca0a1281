// Package llama is the backend for GGUF models: it supervises one engine process per model and is its client.
//
// [Backend.Run] is the supervisor: one goroutine starts the process, loads the model, watches it, kills it when it makes no
// progress, and starts the next; see design.md for its states. What it knows it publishes as an immutable snapshot,
// which [Backend.Prepare], [Backend.Generate] and [Backend.Info] read from any goroutine. llama.cpp can abort the process
// it lives in, which is why it does not live in this one.
package llama

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"

	"qr-gateway/backends"
	pb "qr-gateway/backends/llama/enginepb"
)

// Deps is what a backend needs from its program.
type Deps struct {
	Log      *slog.Logger
	Launcher Launcher // nil starts the configured program
}

// Backend implements [backends.Backend] on an engine process.
type Backend struct {
	cfg    Config
	log    *slog.Logger
	launch Launcher
	jitter func() float64 // in [0,1)

	now      atomic.Pointer[snapshot] // written by Run alone
	running  atomic.Int64             // Generate calls under way
	restarts atomic.Uint64
	served   atomic.Bool // was ready once; written by Run alone
}

// New makes a backend; nothing is started before Run.
func New(cfg Config, d Deps) (*Backend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure llama backend: %w", err)
	}
	b := &Backend{cfg: cfg, log: d.Log.With("model", cfg.ID), launch: d.Launcher, jitter: rand.Float64}
	if b.launch == nil {
		path, err := Binary(cfg.Binary)
		if err != nil {
			return nil, err
		}
		b.launch = &program{path: path, level: cfg.LogLevel, entropy: cfg.Entropy, log: b.log}
	}
	b.now.Store(&snapshot{state: stateStarting, reason: "not started", changed: make(chan struct{})})
	return b, nil
}

// Info implements [backends.Backend].
func (b *Backend) Info() backends.Info {
	s := b.now.Load()
	info := backends.Info{
		Model: b.cfg.ID, Backend: "llama", Ready: s.state == stateReady, State: b.publicState(s.state), Reason: s.reason,
		Context: b.cfg.Context, Workers: b.cfg.Workers, Description: b.cfg.Description,
		Resumes: true,
	}
	if m := s.model; m != nil {
		info.Context, info.Workers, info.Vocabulary = int(m.Context), int(m.Workers), int(m.Vocabulary)
		info.Architecture, info.Memory, info.Chat, info.SizeBytes = m.Architecture, m.Memory, m.Chat, int64(m.ModelBytes)
		if info.Description == "" {
			info.Description = m.Description
		}
	}
	info.Busy = min(int(b.running.Load()), info.Workers)
	return info
}

// publicState names a state as backends.Info does.
func (b *Backend) publicState(s state) string {
	switch s {
	case stateReady:
		return "ready"
	case stateFailed, stateStopping:
		return "failed"
	case stateStarting, stateLoading, stateBackoff:
	}
	if b.served.Load() || b.restarts.Load() > 0 {
		return "restarting"
	}
	return "starting"
}

// Restarts is how often the engine was started again.
func (b *Backend) Restarts() uint64 { return b.restarts.Load() }

// WaitReady waits until the model has decoded a token, the backend has failed for good, or ctx ends.
func (b *Backend) WaitReady(ctx context.Context) error {
	_, err := b.ready(ctx)
	return err
}

// ready waits for a snapshot of the ready state.
func (b *Backend) ready(ctx context.Context) (*snapshot, error) {
	for {
		s := b.now.Load()
		switch s.state {
		case stateReady:
			return s, nil
		case stateFailed, stateStopping:
			return nil, b.unavailable(s)
		case stateStarting, stateLoading, stateBackoff:
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// serving waits as long as a request may wait for an engine.
func (b *Backend) serving(ctx context.Context) (*snapshot, error) {
	wait, cancel := context.WithTimeout(ctx, b.cfg.WaitReady)
	defer cancel()
	s, err := b.ready(wait)
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		return nil, b.unavailable(b.now.Load())
	}
	return s, err
}

func (b *Backend) unavailable(s *snapshot) error {
	return &backends.Error{
		Kind: backends.KindUnavailable, Code: "model_unavailable", Param: "model",
		Message: fmt.Sprintf("model %s can't serve now: its engine is %s: %s", b.cfg.ID, s.state, s.reason),
		Hint:    "try again in a while",
	}
}

// Stats asks the engine for its counters. It does not wait for an engine that is not ready.
func (b *Backend) Stats(ctx context.Context) (*pb.StatsResponse, error) {
	s := b.now.Load()
	if s.state != stateReady {
		return nil, b.unavailable(s)
	}
	res, err := s.client.Stats(ctx, &pb.StatsRequest{})
	if err != nil {
		return nil, fmt.Errorf("read engine stats: %w", err)
	}
	return res, nil
}
