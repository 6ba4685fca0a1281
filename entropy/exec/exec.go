package exec

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"qr-gateway/entropy"
)

// Deps is what a source needs of its surroundings. The zero value is usable.
type Deps struct {
	Log *slog.Logger // nil: the default one
}

// Source draws from a program. It implements [entropy.Source], [entropy.Prober] and io.Closer.
type Source struct {
	cfg    Config
	name   string
	calls  chan *call
	cancel context.CancelFunc // ends the owner
	ended  chan struct{}      // closed when the owner and its child have ended
	hello  hello              // of the first child
	blocks atomic.Uint64
	pool   sync.Pool // of *call
}

// Open checks the program and starts it. It fails if the program can't be run, ends at once, or doesn't speak the frames: then the source
// can't be used. ctx bounds Open alone; Close ends the program.
func Open(ctx context.Context, name string, cfg Config, deps Deps) (*Source, error) {
	fail := func(err error) error {
		return &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "open program", Err: err}
	}
	if err := cfg.Validate(); err != nil {
		return nil, fail(err)
	}
	log := cmp.Or(deps.Log, slog.Default()).With("source", name)
	prog, cleanup, err := cfg.program(log)
	if err != nil {
		return nil, fail(err)
	}
	calls := make(chan *call)
	o := &owner{cfg: cfg, source: name, log: log, jitter: rand.Float64, prog: prog, calls: calls}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(ctx, cancel)
	err = o.start(life)
	unlink()
	if err != nil {
		cancel()
		cleanup()
		if ctx.Err() != nil {
			return nil, &entropy.Error{Kind: entropy.KindTimeout, Source: name, Message: "open program: it has not said hello in time", Err: ctx.Err(), Hint: "for a program that only pours bytes out set framing: raw"}
		}
		return nil, fail(err)
	}
	s := &Source{cfg: cfg, name: name, calls: calls, cancel: cancel, ended: make(chan struct{}), hello: o.child.hello}
	go func() {
		defer close(s.ended)
		defer cleanup()
		o.run(life)
	}()
	return s, nil
}

// program makes the command to run, and what takes away what was laid out for it.
func (c Config) program(log *slog.Logger) (program, func(), error) {
	keep := func() {}
	if err := checkDir(c.Dir); err != nil {
		return program{}, keep, err
	}
	command, env := c.Command, slices.Concat(os.Environ(), c.Env, c.hostEnv())
	if !c.isCommand() {
		command = c.hostCommand()
	}
	path, err := findProgram(command[0])
	if err != nil {
		return program{}, keep, err
	}
	if !c.isCommand() {
		if env, keep, err = withHost(env); err != nil {
			return program{}, keep, err
		}
	}
	return program{path: path, args: command[1:], dir: c.Dir, env: env, log: log}, keep, nil
}

// Draw implements [entropy.Source]. Draws are served one at a time, in no particular order.
func (s *Source) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	asked := time.Now()
	if err := ctx.Err(); err != nil {
		return entropy.Block{}, s.gone(err, len(buf))
	}
	if len(buf) == 0 {
		return entropy.Block{Bytes: buf, Source: s.name, Requested: asked, Arrived: asked, Sequence: s.blocks.Add(1), Class: s.class(s.hello)}, nil
	}
	res, err := s.call(ctx, buf)
	if err != nil {
		return entropy.Block{}, err
	}
	return entropy.Block{
		Bytes: buf, Source: s.name, Device: cmp.Or(res.answer.device, res.hello.Device),
		Requested: asked, Arrived: time.Now(), ServerTime: res.answer.made,
		Sequence: s.blocks.Add(1), Echoed: s.cfg.Framing == FramingFrames,
		Class: s.class(res.hello), Shots: res.shots,
	}, nil
}

// call lets the owner serve a draw.
func (s *Source) call(ctx context.Context, buf []byte) (result, error) {
	c, ok := s.pool.Get().(*call)
	if !ok {
		c = &call{done: make(chan result, 1)}
	}
	if cap(c.data) < len(buf) {
		c.data = make([]byte, len(buf))
	}
	c.data = c.data[:len(buf)]
	select {
	case s.calls <- c:
	case <-ctx.Done():
		s.pool.Put(c)
		return result{}, s.gone(ctx.Err(), len(buf))
	case <-s.ended:
		return result{}, closedError(s.name)
	}
	select {
	case res := <-c.done:
		if res.err == nil {
			copy(buf, c.data)
		}
		s.pool.Put(c)
		return res, res.err
	case <-ctx.Done():
		return result{}, s.gone(ctx.Err(), len(buf)) // the call is the owner's: its bytes are dropped
	}
}

// gone is the error of a draw whose caller has gone.
func (s *Source) gone(err error, n int) error {
	return fmt.Errorf("draw %d bytes from %s: %w", n, s.name, err)
}

// class is the configured class, else what the program says, else unknown; of a pipe that runs all the time, pool.
func (s *Source) class(h hello) entropy.Class {
	fallback := entropy.ClassUnknown
	if s.cfg.Framing == FramingRaw {
		fallback = entropy.ClassPool
	}
	return cmp.Or(s.cfg.Class, h.Class, fallback)
}

// Probe implements [entropy.Prober]: the program says whether it is available, or a raw one gives a byte.
func (s *Source) Probe(ctx context.Context) (entropy.Capabilities, error) {
	var buf []byte
	if s.cfg.Framing == FramingRaw {
		buf = make([]byte, 1)
	}
	res, err := s.call(ctx, buf)
	if err != nil {
		return entropy.Capabilities{}, err
	}
	h := res.hello
	details := map[string]string{"program": h.Name, "framing": s.cfg.Framing, "limit": strconv.Itoa(maxDraw(s.cfg, h)) + " bytes a request"}
	for k, v := range h.Details {
		details[k] = v
	}
	return entropy.Capabilities{
		Device: cmp.Or(res.answer.device, h.Device), Class: s.class(h), Rate: h.Rate,
		Details: details,
	}, nil
}

// Close ends the program and waits until it has ended. It may be called more than once.
func (s *Source) Close() error {
	s.cancel()
	<-s.ended
	return nil
}
