// Package sources owns the entropy sources of a gateway process. It opens those of the configuration, each behind its guard, lends them to
// the engine processes through the hub, tells the log when one fails and when it is back, and says how they are.
//
// [Sources.Run] serves the hub and closes every source when it ends. All other methods may be called from any goroutine and touch no
// source, [Sources.Describe] excepted, which measures one where a request asks for a calibration.
package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/catalog"
	"qr-gateway/entropy/grpc/breaker"
	"qr-gateway/entropy/guard"
	"qr-gateway/entropy/hub"
	"qr-gateway/gateway"
)

// Config is what to open.
type Config struct {
	Specs   []catalog.Spec
	Default string   // name of the source of requests that name none; empty is the operating system's generator
	Allow   []string // names that a request may ask for; empty: all
}

// Deps is what sources work with.
type Deps struct {
	Log *slog.Logger
	Now func() time.Time // nil: time.Now
}

// Sources are all sources of a process.
type Sources struct {
	set   *catalog.Set
	names []string // of all
	allow []string // those that a request may ask for
	first string   // the default
	watch *watch
	hub   *hub.Server
	dir   string // of the hub's socket
	made  hub.Baselines
}

// Open opens the sources and the hub's socket. It fails with the reason of every source that can't be used. What it returns is to be run, or
// closed.
func Open(ctx context.Context, cfg Config, d Deps) (*Sources, error) {
	if d.Now == nil {
		d.Now = time.Now
	}
	if cfg.Default == "" {
		cfg.Default = catalog.SystemName
	}
	s := &Sources{first: cfg.Default, watch: newWatch(d)}
	var err error
	if s.set, err = catalog.Open(ctx, cfg.Specs, catalog.Deps{Events: s.watch, Requests: s.watch}); err != nil {
		return nil, fmt.Errorf("open entropy sources: %w", err)
	}
	if _, err := s.set.Guard(cfg.Default); err != nil {
		return nil, errors.Join(fmt.Errorf("choose the default entropy source: %w", err), s.set.Close())
	}
	s.names, s.allow = s.set.Names(), cfg.Allow
	if len(s.allow) == 0 {
		s.allow = s.names
	}
	if err := s.listen(ctx, d.Log); err != nil {
		return nil, errors.Join(err, s.set.Close())
	}
	return s, nil
}

func (s *Sources) listen(ctx context.Context, log *slog.Logger) (err error) {
	if s.dir, err = os.MkdirTemp("", "qr-entropy-"); err != nil {
		return fmt.Errorf("make socket directory: %w", err)
	}
	if s.hub, err = hub.New(ctx, hub.Config{Dir: s.dir}, hub.Deps{Sources: s, Log: log}); err != nil {
		return errors.Join(err, os.RemoveAll(s.dir))
	}
	return nil
}

// Socket is the path of the hub's.
func (s *Sources) Socket() string { return s.hub.Path() }

// Run serves the hub until ctx ends, and closes the sources.
func (s *Sources) Run(ctx context.Context) error {
	err := s.hub.Run(ctx)
	return errors.Join(err, s.set.Close(), os.RemoveAll(s.dir))
}

// Close gives up sources that are not run.
func (s *Sources) Close() error {
	return errors.Join(s.hub.Close(), s.set.Close(), os.RemoveAll(s.dir))
}

// Source implements [hub.Provider].
func (s *Sources) Source(name string) (entropy.Source, bool) {
	src, err := s.set.Get(name)
	return src, err == nil
}

// Describe implements [hub.Provider]. The frozen baseline of the configuration serves if it has as many blocks of the size asked for.
func (s *Sources) Describe(ctx context.Context, name string, ask hub.Blocks) (hub.Description, error) {
	g, err := s.set.Guard(name)
	if err != nil {
		return hub.Description{}, err
	}
	spec, _ := s.set.Spec(name)
	state := g.State()
	d := hub.Description{
		Type: spec.Type, Policy: string(state.Policy), Can: entropy.Capabilities{Device: state.Device, Class: state.Class},
		Calibration: g.Calibration(),
	}
	src, _ := s.Source(name)
	_, d.Can.Number = src.(entropy.Numberer)
	if ask.Count == 0 || serves(d.Calibration, ask) {
		return d, nil
	}
	d.Calibration, err = s.made.Of(ctx, name, src, ask)
	return d, err
}

func serves(c *guard.Calibration, ask hub.Blocks) bool {
	return c != nil && c.BlockBytes == ask.Bytes && len(c.Sums) >= ask.Count
}

// Names implements [gateway.Sources].
func (s *Sources) Names() []string { return s.allow }

// Default implements [gateway.Sources].
func (s *Sources) Default() string { return s.first }

// Numbers implements [gateway.Sources].
func (s *Sources) Numbers(name string) bool {
	src, _ := s.Source(name)
	_, ok := src.(entropy.Numberer)
	return ok
}

// Refusal implements [gateway.Sources]: an alarmed source lets nothing through before it may be tested again.
func (s *Sources) Refusal(name string) error {
	g, err := s.set.Guard(name)
	if err != nil || g.Policy() != guard.Strict {
		return err
	}
	st := g.State()
	if st.Mode != guard.ModeAlarmed || !s.watch.now().Before(st.RetryAt) {
		return nil
	}
	return &entropy.Error{
		Kind: entropy.KindHealth, Source: name, Message: "under the policy strict it is kept out since an alarm: " + st.LastError,
		Hint: "it is tested again after " + st.RetryAt.Format(time.RFC3339),
	}
}

// States implements [gateway.Sources].
func (s *Sources) States() []gateway.SourceState {
	var out []gateway.SourceState
	for _, name := range s.names {
		out = append(out, s.state(name))
	}
	return out
}

func (s *Sources) state(name string) gateway.SourceState {
	g, _ := s.set.Guard(name) // the names are the set's own
	spec, _ := s.set.Spec(name)
	st := gateway.SourceState{Type: spec.Type, Fallback: spec.Fallback, State: g.State(), Baseline: g.Calibration()}
	st.Degraded, st.Changed = s.watch.of(name)
	if k, _ := catalog.Find(spec.Type); k.Type == "grpc" {
		st.Breaker = string(cmp.Or(s.watch.breaker(name), breaker.Closed))
	}
	st.LastUsed = lastUsed(&st)
	return st
}

// lastUsed is the source that served last, as far as is known: the engines draw from the operating system without asking here.
func lastUsed(st *gateway.SourceState) string {
	switch {
	case st.Degraded && st.Fallback != "":
		return st.Fallback
	case st.Type == catalog.SystemName || st.Draws+st.Numbers > 0:
		return st.Source
	}
	return ""
}
