package link_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/link"
	"qr-gateway/gateway/node"
	"qr-gateway/gateway/queue/memory"
)

// text is a client that notes what it gets.
type text struct {
	strings.Builder
	starts int
}

func (*text) Queued(int, time.Duration) {}

func (s *text) Event(e backends.Event) error {
	if e.Started != nil {
		s.starts++
	}
	s.WriteString(e.Content)
	return nil
}

// chain is a gateway and a worker: a queue between them, and a link through a proxy. Each part is the real one, but the model.
type chain struct {
	d     *dispatch.Dispatcher
	q     *memory.Queue
	s     *link.Server
	p     *proxy
	model *fake.Model
}

func newChain(t *testing.T, step func(ctx context.Context, id string, n int) error) *chain {
	t.Helper()
	c := &chain{}
	var err error
	if c.q, err = memory.New(memory.DefaultConfig()); err != nil {
		t.Fatal(err)
	}
	start(t, c.q.Run)
	if c.d, err = dispatch.New(dispatch.DefaultConfig(), dispatch.Deps{Queue: c.q}); err != nil {
		t.Fatal(err)
	}
	c.s, _ = serve(t, c.d, func(c *link.Config) { c.Silence = 300 * time.Millisecond })
	c.p = newProxy(t, c.s.Addr().String())
	cfg := fake.DefaultConfig()
	cfg.Model = "m"
	if c.model, err = fake.New(cfg, fake.Deps{Step: step}); err != nil {
		t.Fatal(err)
	}
	worker, _ := dial(t, link.ClientDeps{Models: &shelf{models: []backends.Backend{c.model}}}, func(cfg *link.ClientConfig) {
		cfg.Silence, cfg.Gateways = 200*time.Millisecond, []string{c.p.addr()}
	})
	n, err := node.New(node.DefaultConfig(), []node.Model{{ID: "m", Backend: c.model, Workers: 4}},
		node.Deps{Queue: c.q, Frames: node.Here(worker.For(c.p.addr())), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	start(t, n.Run)
	return c
}

// do prepares on the worker, queues, and returns the text that came.
func (c *chain) do(ctx context.Context, id string) (*text, error) {
	prompt, out := "prompt of "+id, &text{}
	p, err := c.s.Backend("m").Prepare(ctx, &backends.Request{ID: id, Model: "m", Text: &prompt, MaxTokens: 60})
	if err != nil {
		return out, err
	}
	_, err = c.d.Do(ctx, dispatch.Job{ID: id, Key: "k", Model: "m", Prepared: p}, out)
	return out, err
}

// alone is what the model says when nothing is between.
func (c *chain) alone(t *testing.T, id string) string {
	t.Helper()
	m, err := fake.New(fake.Config{Model: "m", Context: 2048, Workers: 1}, fake.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	prompt, out := "prompt of "+id, &text{}
	p, err := m.Prepare(t.Context(), &backends.Request{ID: id, Model: "m", Text: &prompt, MaxTokens: 60})
	if err == nil {
		_, err = m.Generate(t.Context(), p, out.Event)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestAnswersSurviveCuts has clients read whole answers while the connections break again and again.
func TestAnswersSurviveCuts(t *testing.T) {
	c := newChain(t, func(ctx context.Context, _ string, _ int) error {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	stop := make(chan struct{})
	var harm, work sync.WaitGroup
	harm.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-time.After(20 * time.Millisecond):
				c.p.blow(3 + i%5)
			case <-stop:
				return
			}
		}
	})
	for i := range 12 {
		id := fmt.Sprint("r", i)
		work.Go(func() {
			got, err := c.do(within(t), id)
			if want := c.alone(t, id); err != nil || got.String() != want || got.starts != 1 {
				t.Errorf("request %s: %v, %d starts, %q, want %q", id, err, got.starts, got, want)
			}
		})
	}
	work.Wait()
	close(stop)
	harm.Wait()
	until(t, "the queue has settled", func() bool {
		stats, err := c.q.Stats(t.Context())
		return err == nil && stats.Done == 12 && stats.Requeued+stats.Failed+stats.LeasesLost == 0
	})
}

// TestClientLeaves has a client leave in the middle: the run ends, and what it ran on is free.
func TestClientLeaves(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 1)
	c := newChain(t, func(ctx context.Context, id string, n int) error {
		if id != "leaves" || n < 5 {
			return ctx.Err()
		}
		close(began)
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	})
	ctx, cancel := context.WithCancelCause(within(t))
	left := errors.New("left")
	go func() { <-began; cancel(left) }()
	if _, err := c.do(ctx, "leaves"); !errors.Is(err, left) {
		t.Errorf("Do = %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the run ended with %v", err)
	}
	got, err := c.do(within(t), "next")
	if want := c.alone(t, "next"); err != nil || got.String() != want {
		t.Errorf("the next one got %v, %q, want %q", err, got, want)
	}
}
