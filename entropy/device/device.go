package device

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"qr-gateway/entropy"
)

const (
	// slack is how long a read may overrun its patience, for the driver's sake, before the device counts as stuck.
	slack = 2 * time.Second
	// closeWait bounds Close when a read is stuck.
	closeWait = 5 * time.Second
)

// Deps is what a source needs of its surroundings. The zero value is usable.
type Deps struct {
	Log *slog.Logger // nil: the default one
	Sys string       // where sysfs is; empty: /sys

	open func(Config) (port, error) // nil: the real one
}

// Source draws from a device. It implements [entropy.Source], [entropy.Prober] and io.Closer.
type Source struct {
	cfg    Config
	name   string
	calls  chan *call
	end    func()        // ends the owner
	ended  chan struct{} // closed when the owner has ended
	busy   *atomic.Int64 // when the owner's read is overdue, in ns since 1970; 0: it does nothing
	blocks atomic.Uint64
	pool   sync.Pool // of *call
}

// Open checks what the path names, opens it and sets it up. It fails if that can't be done: a device that is not there is a mistake, while
// one that goes away later is looked for again. ctx bounds Open alone.
func Open(ctx context.Context, name string, cfg Config, deps Deps) (*Source, error) {
	fail := func(err error) error {
		return &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "open device", Err: err}
	}
	if err := cfg.Validate(); err != nil {
		return nil, fail(err)
	}
	cfg = cfg.resolve()
	// The pipe wakes a read that waits when the source is closed.
	wake, waker, err := os.Pipe()
	if err != nil {
		return nil, fail(fmt.Errorf("make pipe: %w", err))
	}
	if deps.open == nil {
		deps.open = func(cfg Config) (port, error) {
			if err := checkPath(cfg); err != nil {
				return nil, err
			}
			return openPort(cfg, int(wake.Fd()))
		}
	}
	life, cancel := context.WithCancel(context.Background())
	s := &Source{cfg: cfg, name: name, calls: make(chan *call), ended: make(chan struct{}), busy: new(atomic.Int64)}
	s.end = sync.OnceFunc(func() { cancel(); _ = waker.Close() }) // a pipe
	o := &owner{
		cfg: cfg, source: name, log: cmp.Or(deps.Log, slog.Default()).With("source", name),
		sys: cmp.Or(deps.Sys, "/sys"), open: deps.open, calls: s.calls, busy: s.busy,
	}
	unlink := context.AfterFunc(ctx, s.end) // which ends what Open waits for
	err = o.connect()
	if !unlink() && err == nil {
		o.disconnect()
		err = ctx.Err()
	}
	if err != nil {
		s.end()
		_ = wake.Close() // a pipe
		return nil, fail(err)
	}
	go func() {
		defer close(s.ended)
		defer func() { _ = wake.Close() }() // a pipe
		o.run(life)
	}()
	return s, nil
}

// Draw implements [entropy.Source]. Draws are served one at a time. When ctx ends, Draw returns; the read goes on to its end and is dropped.
func (s *Source) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	asked := time.Now()
	if err := ctx.Err(); err != nil {
		return entropy.Block{}, s.gone(err, len(buf))
	}
	if len(buf) > maxDraw {
		return entropy.Block{}, &entropy.Error{Kind: entropy.KindRefused, Source: s.name, Message: fmt.Sprintf("a draw of %d bytes is more than %d", len(buf), maxDraw)}
	}
	b := entropy.Block{Bytes: buf, Source: s.name, Device: s.cfg.Path, Requested: asked, Class: s.cfg.Class}
	if len(buf) > 0 {
		res, err := s.call(ctx, buf)
		if err != nil {
			return entropy.Block{}, err
		}
		b.Device, b.Shots = cmp.Or(res.device, s.cfg.Path), res.shots
	}
	b.Arrived, b.Sequence = time.Now(), s.blocks.Add(1)
	return b, nil
}

// call lets the owner serve a draw. It waits as long as the owner's reads take the time that they may.
func (s *Source) call(ctx context.Context, buf []byte) (result, error) {
	c, ok := s.pool.Get().(*call)
	if !ok {
		c = &call{done: make(chan result, 1)}
	}
	c.data = resize(c.data, len(buf))
	late := time.NewTimer(slack)
	defer late.Stop()
	calls := s.calls
	for {
		select {
		case calls <- c:
			calls = nil // taken
		case res := <-c.done:
			if res.err == nil {
				copy(buf, c.data)
			}
			s.pool.Put(c)
			return res, res.err
		case <-ctx.Done():
			return result{}, s.gone(ctx.Err(), len(buf)) // c may be the owner's: its bytes are dropped
		case <-s.ended:
			return result{}, closedError(s.name)
		case <-late.C:
			if s.stuck() {
				return result{}, &entropy.Error{
					Kind: entropy.KindTimeout, Source: s.name, Message: "a read of " + s.cfg.Path + " does not return; the device is dead until it does",
					Hint: "unplug the device, or restart the gateway",
				}
			}
			late.Reset(slack)
		}
	}
}

func resize(p []byte, n int) []byte {
	if cap(p) < n {
		return make([]byte, n)
	}
	return p[:n]
}

// stuck reports whether the owner is in a read that should have returned.
func (s *Source) stuck() bool {
	due := s.busy.Load()
	return due != 0 && time.Now().UnixNano() > due
}

// gone is the error of a draw whose caller has gone.
func (s *Source) gone(err error, n int) error {
	return fmt.Errorf("draw %d bytes from %s: %w", n, s.name, err)
}

// Probe implements [entropy.Prober]: it reads a few bytes and throws them away.
func (s *Source) Probe(ctx context.Context) (entropy.Capabilities, error) {
	var buf [8]byte
	b, err := s.Draw(ctx, buf[:])
	if err != nil {
		return entropy.Capabilities{}, err
	}
	details := map[string]string{"path": s.cfg.Path, "kind": s.cfg.Kind, "discard": strconv.Itoa(s.cfg.Discard) + " bytes a read"}
	if s.cfg.Recipe != "" {
		details["recipe"] = s.cfg.Recipe + " (not tried on real hardware)"
	}
	return entropy.Capabilities{Device: b.Device, Class: s.cfg.Class, Rate: s.cfg.Rate, Details: details}, nil
}

// Close ends reading and lets the device go. A read that is stuck in the driver can't be ended: Close reports it then and does not wait
// for ever. It may be called more than once.
func (s *Source) Close() error {
	s.end()
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case <-s.ended:
		return nil
	case <-timer.C:
		return &entropy.Error{Kind: entropy.KindTimeout, Source: s.name, Message: "close device: a read of " + s.cfg.Path + " does not return"}
	}
}

func closedError(source string) error {
	return &entropy.Error{Kind: entropy.KindClosed, Source: source, Message: "it was closed"}
}
