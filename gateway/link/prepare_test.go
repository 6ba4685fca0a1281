package link_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
	"qr-gateway/gateway/link"
	"qr-gateway/sampler"
)

// shelf is what a worker hosts.
type shelf struct {
	mu     sync.Mutex // guards models
	models []backends.Backend
}

func (s *shelf) Backend(id string) (backends.Backend, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.models {
		if m.Info().Model == id {
			return m, true
		}
	}
	return nil, false
}

func (s *shelf) List() []backends.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []backends.Info
	for _, m := range s.models {
		out = append(out, m.Info())
	}
	return out
}

func (s *shelf) Warm() []uint64 { return []uint64{7, 1 << 63} }

func (s *shelf) Free() map[string]int { return map[string]int{"m": 4000} }

func (s *shelf) put(models ...backends.Backend) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models = models
}

// scripted is a model whose Prepare does as it is told.
type scripted struct {
	info    backends.Info
	prepare func(ctx context.Context, r *backends.Request) (*backends.Prepared, error)
}

func (m *scripted) Info() backends.Info { return m.info }

func (m *scripted) Prepare(ctx context.Context, r *backends.Request) (*backends.Prepared, error) {
	return m.prepare(ctx, r)
}

func (*scripted) Generate(context.Context, *backends.Prepared, func(backends.Event) error) (*backends.Result, error) {
	return nil, errors.ErrUnsupported
}

// by is a model that says who prepared.
func by(worker string, ready bool, busy int) *scripted {
	return &scripted{
		info: backends.Info{Model: "m", Ready: ready, State: "ready", Workers: 4, Busy: busy, Context: 100, Resumes: true},
		prepare: func(_ context.Context, r *backends.Request) (*backends.Prepared, error) {
			return &backends.Prepared{Request: r, Tokens: []int32{1}, Stops: []string{worker}}, nil
		},
	}
}

// host links a worker with models to a gateway.
func host(t *testing.T, s *link.Server, name string, models ...backends.Backend) (*shelf, *running) {
	t.Helper()
	on := &shelf{models: models}
	_, r := dial(t, link.ClientDeps{Models: on}, func(c *link.ClientConfig) {
		c.Worker, c.Gateways = name, []string{s.Addr().String()}
	})
	until(t, name+" has announced itself", func() bool {
		for _, w := range s.Workers() {
			if w.Name == name {
				return len(w.Models) == len(models)
			}
		}
		return false
	})
	return on, r
}

func request() *backends.Request {
	text, seed := "a <prompt>", int64(7)
	return &backends.Request{ID: "r", Model: "m", Text: &text, Stop: []string{"\n"}, Params: sampler.Params{Seed: &seed, TopP: 0.5}}
}

func TestPrepare(t *testing.T) {
	s, _ := serve(t, newTaker(), func(c *link.Config) { c.MaxMessage = 1 << 20 })
	cfg := fake.DefaultConfig()
	cfg.Model = "m"
	m, err := fake.New(cfg, fake.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	host(t, s, "w1", m)
	want, err := m.Prepare(within(t), request())
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Backend("m").Prepare(within(t), request())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("prepared request (-here +there):\n%s", diff)
	}
	long := strings.Repeat("x", 600<<10) // goes in parts
	_, err = s.Backend("m").Prepare(within(t), &backends.Request{ID: "r", Model: "m", Text: &long})
	if e := as(t, err, backends.KindTooLong); e.Code != "context_length_exceeded" || !strings.Contains(e.Message, "614400") {
		t.Errorf("a long prompt: %v", err)
	}
	long = strings.Repeat(long, 2)
	_, err = s.Backend("m").Prepare(within(t), &backends.Request{ID: "r", Model: "m", Text: &long})
	if _ = as(t, err, backends.KindInvalid); !errors.Is(err, link.ErrTooLarge) {
		t.Errorf("a prompt over max_message: %v", err)
	}
	_, err = s.Backend("m").Generate(within(t), got, nil)
	_ = as(t, err, backends.KindInternal)
}

func TestPrepareGoesToTheBest(t *testing.T) {
	s, _ := serve(t, newTaker(), nil)
	host(t, s, "starting", by("starting", false, 0))
	host(t, s, "busy", by("busy", true, 3))
	_, quiet := host(t, s, "quiet", by("quiet", true, 1))
	prepared := func() string {
		p, err := s.Backend("m").Prepare(within(t), request())
		if err != nil {
			t.Fatal(err)
		}
		return p.Stops[0]
	}
	if who := prepared(); who != "quiet" {
		t.Errorf("%s prepared, want the least busy", who)
	}
	info := s.Backend("m").Info()
	if !info.Ready || info.Workers != 12 || info.Busy != 4 || !info.Resumes || len(info.Replicas) != 3 || info.Replicas[0].Name != "quiet" {
		t.Errorf("the model is %+v", info)
	}
	quiet.stop()
	until(t, "it is missed", func() bool { return len(s.Workers()) == 2 })
	if who := prepared(); who != "busy" {
		t.Errorf("%s prepared, want the one that is ready", who)
	}
}

// TestPrepareElsewhere has a worker go away, fail or hang while another one could do it.
func TestPrepareElsewhere(t *testing.T) {
	for name, prepare := range map[string]func(ctx context.Context, leave func()) error{
		"leaves":  func(ctx context.Context, leave func()) error { leave(); <-ctx.Done(); return ctx.Err() },
		"hangs":   func(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() },
		"is down": func(context.Context, func()) error { return &backends.Error{Kind: backends.KindUnavailable} },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := serve(t, newTaker(), func(c *link.Config) { c.PrepareTry = 100 * time.Millisecond })
			bad := by("bad", true, 0)
			_, r := host(t, s, "bad", bad)
			bad.prepare = func(ctx context.Context, _ *backends.Request) (*backends.Prepared, error) {
				return nil, prepare(ctx, func() { go r.stop() })
			}
			host(t, s, "good", by("good", true, 1))
			p, err := s.Backend("m").Prepare(within(t), request())
			if err != nil || p.Stops[0] != "good" {
				t.Errorf("Prepare = %+v, %v", p, err)
			}
			if n := s.Counts(); n.Links != 2 || n.Prepares != 2 || n.Retries != 1 {
				t.Errorf("the gateway counts %+v", n)
			}
		})
	}
}

func TestPrepareErrors(t *testing.T) {
	s, _ := serve(t, newTaker(), nil)
	m := by("w", true, 0)
	host(t, s, "w", m)
	for name, c := range map[string]struct {
		fail error
		kind backends.Kind
	}{
		"the client's": {&backends.Error{Kind: backends.KindInvalid, Code: "c", Param: "messages", Message: "the template raised"}, backends.KindInvalid},
		"a defect":     {errors.New("of the inside"), backends.KindInternal},
		"not there":    {&backends.Error{Kind: backends.KindUnavailable, Message: "restarting"}, backends.KindUnavailable},
		"a panic":      {nil, backends.KindInternal},
	} {
		m.prepare = func(context.Context, *backends.Request) (*backends.Prepared, error) {
			if c.fail == nil {
				panic("a defect")
			}
			return nil, c.fail
		}
		_, err := s.Backend("m").Prepare(within(t), request())
		e := as(t, err, c.kind)
		if want, ok := errors.AsType[*backends.Error](c.fail); ok && (e.Message != want.Message || e.Param != want.Param || e.Code != want.Code) {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestPrepareDropped has the client leave.
func TestPrepareDropped(t *testing.T) {
	s, _ := serve(t, newTaker(), nil)
	m, began, ended := by("w", true, 0), make(chan struct{}), make(chan error, 1)
	m.prepare = func(ctx context.Context, _ *backends.Request) (*backends.Prepared, error) {
		close(began)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}
	host(t, s, "w", m)
	ctx, cancel := context.WithCancelCause(within(t))
	go func() { <-began; cancel(errors.New("left")) }()
	if _, err := s.Backend("m").Prepare(ctx, request()); err == nil || err.Error() != "left" {
		t.Errorf("Prepare = %v, want its context's cause", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the worker's context ended with %v", err)
	}
	m.prepare = by("w", true, 0).prepare
	if _, err := s.Backend("m").Prepare(within(t), request()); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

func TestNobodyHosts(t *testing.T) {
	s, _ := serve(t, newTaker(), func(c *link.Config) { c.Wait = 50 * time.Millisecond })
	_, err := s.Backend("m").Prepare(within(t), request())
	if e := as(t, err, backends.KindUnavailable); !strings.Contains(e.Message, "no worker that hosts it is linked") || e.Hint == "" {
		t.Errorf("Prepare = %+v", e)
	}
	if i := s.Backend("m").Info(); i.Ready || i.Model != "m" || i.Reason == "" {
		t.Errorf("Info = %+v", i)
	}
	_, r := host(t, s, "w", by("w", true, 2))
	r.stop()
	until(t, "it is missed", func() bool { return len(s.Workers()) == 0 })
	if i := s.Backend("m").Info(); i.Ready || i.State != "unreachable" || i.Context != 100 || i.Busy != 0 {
		t.Errorf("Info of one that was hosted = %+v", i)
	}
	if all := s.List(); len(all) != 1 || all[0].Model != "m" {
		t.Errorf("List = %+v", all)
	}
}

// TestPrepareWaits has the only worker come late.
func TestPrepareWaits(t *testing.T) {
	s, _ := serve(t, newTaker(), func(c *link.Config) { c.Wait = patience })
	got := make(chan error, 1)
	go func() { _, err := s.Backend("m").Prepare(within(t), request()); got <- err }()
	on, _ := host(t, s, "w", by("other", true, 0))
	changed := by("w", true, 0)
	on.put(changed)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestPreparesAreBounded has more requests than a worker may be asked at once: the others wait.
func TestPreparesAreBounded(t *testing.T) {
	s, _ := serve(t, newTaker(), func(c *link.Config) { c.MaxPrepares, c.Wait = 2, patience })
	m := by("w", true, 0)
	answer := m.prepare
	var mu sync.Mutex
	now, most := 0, 0
	m.prepare = func(ctx context.Context, r *backends.Request) (*backends.Prepared, error) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		<-time.After(time.Millisecond)
		mu.Lock()
		now--
		mu.Unlock()
		return answer(ctx, r)
	}
	host(t, s, "w", m)
	var work sync.WaitGroup
	for range 40 {
		work.Go(func() {
			if _, err := s.Backend("m").Prepare(within(t), request()); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if most > 10 { // a few may pass between looking and asking
		t.Errorf("%d requests were prepared at once", most)
	}
}

// TestDifferentModelsOfOneID has workers that can't stand in for each other.
func TestDifferentModelsOfOneID(t *testing.T) {
	log := &journal{}
	s, _ := serveWith(t, link.Deps{Frames: newTaker(), Log: log.logger()}, nil)
	small := by("small", true, 1)
	small.info.Context, small.info.Vocabulary = 50, 9
	large := by("large", true, 0)
	large.info.Vocabulary = 9
	host(t, s, "large", large)
	host(t, s, "small", small)
	until(t, "the log says so", func() bool { return strings.Contains(log.String(), "two workers host different models") })
	if text := log.String(); !strings.Contains(text, `differs="context 100 and 50"`) || !strings.Contains(text, "worker=small other=large") {
		t.Errorf("the log says %s", text)
	}
	if n := s.Backend("m").Info().Context; n != 50 {
		t.Errorf("the context is %d, want what both have, 50", n)
	}
}

func TestAnnouncementsFollow(t *testing.T) {
	s, _ := serve(t, newTaker(), nil)
	on, _ := host(t, s, "w", by("w", true, 0))
	w := s.Workers()[0]
	if w.Name != "w" || w.Version != "v1.9.0" || !strings.HasPrefix(w.Peer, "127.0.0.1:") || w.Warm != 2 || w.Free["m"] != 4000 {
		t.Errorf("the worker is %+v", w)
	}
	if got := fmt.Sprint(s.Warm("w"), s.Warm("nobody")); got != "[7 9223372036854775808] []" {
		t.Errorf("warm prefixes are %s", got)
	}
	on.put(by("w", false, 4))
	until(t, "the news arrives", func() bool { i := s.Backend("m").Info(); return !i.Ready && i.Busy == 4 })
	on.put()
	until(t, "it has gone", func() bool { return s.Backend("m").Info().State == "unreachable" })
}
