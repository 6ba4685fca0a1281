package vllm_test

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/backends/supply"
	"qr-gateway/backends/vllm"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/sidecar"
	"qr-gateway/backends/vllm/sidecar/sidecartest"
	"qr-gateway/backends/vllm/vllmtest"
	"qr-gateway/backends/vllm/wire"
)

// near is a sidecar in this process.
func near(t *testing.T) (*sidecar.Server, string) {
	t.Helper()
	cfg := sidecar.DefaultConfig()
	cfg.Socket, cfg.Version, cfg.Deadline = filepath.Join(t.TempDir(), "s.sock"), "test", 5*time.Second
	s, err := sidecar.New(cfg, sidecar.Deps{Sources: supply.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	t.Cleanup(func() { stop(); run.Wait() })
	return s, cfg.Socket
}

// plugged asks a sidecar over its socket, as the plugin does, for the rows of a model that isn't there.
type plugged struct {
	t      *testing.T
	mu     sync.Mutex // guards all below
	plugin *sidecartest.Plugin
	handle map[string]uint32
}

func plug(t *testing.T, socket string) *plugged {
	t.Helper()
	p, err := sidecartest.Dial(socket, sidecartest.Options{Vocab: vllmtest.Vocabulary, MaxRows: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	if err := p.Conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &plugged{t: t, plugin: p, handle: map[string]uint32{}}
}

// Choose implements vllmtest.Plugin.
func (p *plugged) Choose(rid, cfg string, step int, last bool) (int32, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	token, err := p.ask(rid, cfg, step, last)
	if err != nil {
		p.t.Errorf("%s, step %d: %v", rid, step, err)
		return 0, false
	}
	return token, token >= 0
}

func (p *plugged) ask(rid, cfg string, step int, last bool) (int32, error) {
	if step == 0 {
		h, err := p.plugin.Begin(rid, cfg, []int32{1, 2, 3}, nil)
		if err != nil {
			return -1, fmt.Errorf("begin: %w", err)
		}
		p.handle[rid] = h
	}
	row := logits(step, last)
	answers, err := p.plugin.Step(p.plugin.Compact(p.handle[rid], step, row))
	if err == nil && choice.Status(answers[0].Status) == choice.Whole {
		answers, err = p.plugin.Rest(p.plugin.Shared(p.handle[rid], step, 0, row))
	}
	if err != nil {
		return -1, fmt.Errorf("show row: %w", err)
	}
	return p.taken(rid, answers[0], last)
}

func (p *plugged) taken(rid string, a wire.Answer, last bool) (int32, error) {
	if last {
		if err := p.plugin.End(p.handle[rid]); err != nil {
			return -1, fmt.Errorf("end: %w", err)
		}
	}
	if s := choice.Status(a.Status); s != choice.Token {
		return -1, fmt.Errorf("the answer is %s", s)
	}
	return a.Token, nil
}

// logits are the row of a step: many tokens are likely, or the end alone.
func logits(step int, last bool) []float32 {
	row := make([]float32, vllmtest.Vocabulary)
	for i := range row {
		row[i] = float32(math.Sin(float64(i*7 + step)))
		if (i == 0) != last {
			row[i] = float32(math.Inf(-1))
		}
	}
	return row
}

// TestRealSidecar runs the backend with the sidecar itself, over its socket: every token is found to be the one that it chose.
func TestRealSidecar(t *testing.T) {
	side, socket := near(t)
	far := vllmtest.NewServer(t, vllmtest.Options{Model: "there", Plugin: true, Length: 30, Group: 3}, plug(t, socket))
	r := &rig{far: far, log: &syncBuffer{}}
	var err error
	if r.Backend, err = vllm.New(config(far.URL), vllm.Deps{Choices: side, Log: r.logger()}); err != nil {
		t.Fatal(err)
	}
	running(t, r.Backend)
	if i := r.until(t, "ready", func(i backends.Info) bool { return i.Ready }); i.Unsampled != "" {
		t.Fatalf("it is %+v\n%s", i, r.log)
	}
	seeded := func(n string) outcome {
		q := chat(true, n+`,"return_token_ids":true`)
		q.Params.Seed, q.Params.DiagnosticMode, q.Params.TopK = new(int64(9)), true, 50
		return ask(t.Context(), r, q).well(t)
	}
	tokens := func(o outcome, index int) (ids []int32) {
		for _, raw := range append(o.raw, string(o.res.Last)) {
			for _, c := range decode[chunkOf](t, raw).Choices {
				if c.Index == index {
					ids = append(ids, c.IDs...)
				}
			}
		}
		return ids
	}
	one, three := seeded(""), seeded(`,"n":3`)
	if diff := cmp.Diff(tokens(one, 0), tokens(three, 0)); diff != "" || cmp.Equal(tokens(three, 0), tokens(three, 1)) {
		t.Errorf("the first of three is another than the only one, or the same as the second:\n%s", diff)
	}
	s := one.res.Stats
	if s.Native+s.Mismatched != 0 || s.Tokens != 30 || len(s.Records) != 30 || s.Decoder != "plain" || s.Strategy != "fixed" {
		t.Errorf("stats %+v", s)
	}
	for i, rec := range s.Records {
		if rec.Token != tokens(one, 0)[i] || rec.Step != i {
			t.Errorf("record %d is %+v, the token was %d", i, rec, tokens(one, 0)[i])
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if o := ask(t.Context(), r, chat(false, "")); o.err != nil || o.res.Stats.EntropySource != "system" || o.res.Stats.EntropyBytes == 0 {
				t.Errorf("it came to %+v, %v", o.res, o.err)
			}
		})
	}
	all.Wait()
	if n := r.Counts(); n.Native+n.Mismatched != 0 {
		t.Errorf("counts %+v\n%s", n, r.log)
	}
}
