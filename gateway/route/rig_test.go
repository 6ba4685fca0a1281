package route_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
	"qr-gateway/gateway/route"
	"qr-gateway/sampler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine is a fake model that a test can break.
type engine struct {
	*fake.Model
	name    string
	workers int
	weight  float64

	fail    atomic.Pointer[failure] // nil: none
	hang    atomic.Bool             // holds every request before each token, until it is cancelled
	prepare atomic.Bool             // holds every Prepare
	run     func(context.Context) error
	raw     bool
	samples atomic.Pointer[string] // why it can't choose tokens by parameters; empty: it can; nil: it is no such backend
	load    atomic.Uint64          // that it tells, in hundredths

	runs atomic.Int64 // under way
	all  atomic.Int64 // ever
}

// failure is what a request ends with, before the token at step.
type failure struct {
	step int
	err  error
}

func newEngine(t testing.TB, name string, workers int) *engine {
	t.Helper()
	e := &engine{name: name, workers: workers, weight: 1}
	c := fake.DefaultConfig()
	c.Model, c.Workers = "m", workers
	var err error
	if e.Model, err = fake.New(c, fake.Deps{Step: e.step}); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *engine) step(ctx context.Context, _ string, step int) error {
	if e.hang.Load() {
		<-ctx.Done()
	}
	if f := e.fail.Load(); f != nil && f.step == step {
		return f.err
	}
	return ctx.Err()
}

func (e *engine) Prepare(ctx context.Context, req *backends.Request) (*backends.Prepared, error) {
	if e.prepare.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return e.Model.Prepare(ctx, req)
}

func (e *engine) Generate(ctx context.Context, p *backends.Prepared, emit func(backends.Event) error) (*backends.Result, error) {
	e.all.Add(1)
	e.runs.Add(1)
	defer e.runs.Add(-1)
	return e.Model.Generate(ctx, p, emit)
}

func (e *engine) Info() backends.Info {
	info := e.Model.Info()
	info.Raw, info.Load = e.raw, float64(e.load.Load())/100
	if why := e.samples.Load(); why != nil {
		info.Raw, info.Samples, info.Unsampled = true, true, *why
	}
	return info
}

// running is an engine that somebody has to run.
type running struct{ *engine }

func (r running) Run(ctx context.Context) error { return r.run(ctx) }

// broken makes every request end with a failure before its first token.
func (e *engine) broken(kind backends.Kind) {
	e.at(0, &backends.Error{Kind: kind, Message: "made to fail"})
}

func (e *engine) at(step int, err error) { e.fail.Store(&failure{step, err}) }

func (e *engine) whole() { e.fail.Store(nil) }

func config() route.Config { return route.DefaultConfig("m") }

func group(t testing.TB, cfg route.Config, all ...*engine) *route.Group {
	t.Helper()
	g, err := build(cfg, all...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func build(cfg route.Config, all ...*engine) (*route.Group, error) {
	var replicas []route.Replica
	for _, e := range all {
		r := route.Replica{Name: e.name, Backend: e, Weight: e.weight, Workers: e.workers}
		if e.run != nil {
			r.Backend = running{e}
		}
		replicas = append(replicas, r)
	}
	return route.New(cfg, replicas, route.Deps{})
}

// groupOf makes a group of backends with two workers each.
func groupOf(t interface {
	Helper()
	Fatal(args ...any)
}, cfg route.Config, names []string, all []backends.Backend,
) *route.Group {
	t.Helper()
	var replicas []route.Replica
	for i, b := range all {
		replicas = append(replicas, route.Replica{Name: names[i], Backend: b, Weight: 1, Workers: 2})
	}
	g, err := route.New(cfg, replicas, route.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// answer is what became of a request.
type answer struct {
	text   string
	starts int
	result *backends.Result
	err    error
}

func ask(ctx context.Context, g backends.Backend, prompt string) answer {
	return askWith(ctx, g, prompt, func(backends.Event) error { return nil })
}

func askWith(ctx context.Context, g backends.Backend, prompt string, emit func(backends.Event) error) answer {
	return askFor(ctx, g, request(prompt), emit)
}

func askFor(ctx context.Context, g backends.Backend, r *backends.Request, emit func(backends.Event) error) answer {
	var a answer
	var text strings.Builder
	p, err := g.Prepare(ctx, r)
	if err != nil {
		return answer{err: err}
	}
	a.result, a.err = g.Generate(ctx, p, func(e backends.Event) error {
		if e.Started != nil {
			a.starts++
		}
		text.WriteString(e.Content)
		return emit(e)
	})
	a.text = text.String()
	return a
}

func request(prompt string) *backends.Request {
	return &backends.Request{ID: prompt, Model: "m", Text: &prompt, MaxTokens: 8, Params: sampler.Defaults()}
}

// right asserts that a request got what a single model answers.
func (a answer) right(t testing.TB, prompt string) answer {
	t.Helper()
	if a.err != nil {
		t.Errorf("%s: %v", prompt, a.err)
		return a
	}
	if want := ask(context.Background(), newEngine(t, "alone", 1), prompt); a.text != want.text {
		t.Errorf("%s: got %q, want %q", prompt, a.text, want.text)
	}
	return a
}

func (a answer) kind(t testing.TB, want backends.Kind) {
	t.Helper()
	var e *backends.Error
	if !errors.As(a.err, &e) || e.Kind != want {
		t.Errorf("ended with %v, want an error of kind %s", a.err, want)
	}
}

// stats are those of a replica.
func stats(t testing.TB, g *route.Group, name string) route.Stats {
	t.Helper()
	for _, s := range g.Stats() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no replica %s", name)
	return route.Stats{}
}

// replica is what the model list says of one.
func replica(t testing.TB, g *route.Group, name string) backends.ReplicaInfo {
	t.Helper()
	for _, r := range g.Info().Replicas {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("there is no replica %s", name)
	return backends.ReplicaInfo{}
}

func after(d time.Duration) { <-time.NewTimer(d).C }

func prompt(i int) string { return fmt.Sprint("prompt ", i) }

// idle asserts that nothing is left behind.
func idle(t testing.TB, g *route.Group) {
	t.Helper()
	for _, s := range g.Stats() {
		if s.InFlight != 0 {
			t.Errorf("%d requests are with replica %s, want none", s.InFlight, s.Name)
		}
	}
}

// started runs a group for the length of a test.
func started(ctx context.Context, g *route.Group) (ended func() error) {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	return sync.OnceValue(func() error { stop(); return <-done })
}
