package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/supply"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/sidecar/sidecartest"
	"qr-gateway/backends/vllm/wire"
	"qr-gateway/entropy"
	"qr-gateway/entropy/hub"
	"qr-gateway/sampler"
)

// lab lends one source with a policy.
type lab struct {
	policy string
	fill   func(ctx context.Context, buf []byte) (sampler.Block, error)
}

func (l *lab) Open(_ context.Context, name string, _ hub.Blocks) (supply.Opened, error) {
	return supply.Opened{Source: l, Name: name, Policy: l.policy}, nil
}

func (l *lab) Fill(ctx context.Context, buf []byte) (sampler.Block, error) { return l.fill(ctx, buf) }

// bytes are some that give no number an edge.
func bytes(buf []byte) {
	for i := range buf {
		buf[i] = byte(i * 37)
	}
}

const fromLab = `{"qr_entropy_source":"lab","qr_sample_count":64,"qr_diagnostic_mode":true}`

// TestResumeAfterRestart holds that an answer goes on with the tokens that it would have had, whichever side dies in the middle of it.
func TestResumeAfterRestart(t *testing.T) {
	cfg := `{"qr_seed":5,"qr_repetition_penalty":1.5,"qr_frequency_penalty":1}`
	const n, cut = 40, 17
	var rows [][]float32
	for at := range n {
		rows = append(rows, logits(vocab, 4, at))
	}
	ref := inline(t, cfg, []int32{1, 2, 3}, rows)
	for _, who := range []string{"sidecar", "plugin", "nobody"} {
		t.Run(who, func(t *testing.T) {
			r := start(t, nil)
			same := func(o *sidecartest.Options) { o.Session = "one" }
			p := r.dial(t, same)
			h := begin(t, p, "r", cfg)
			var got []int32
			for at, row := range rows {
				if at == cut {
					switch who {
					case "sidecar":
						r.stop()
						if _, err := p.Step(p.Compact(h, at, row)); err == nil {
							t.Fatal("a dead sidecar answers")
						}
						r = startWith(t, r.cfg, r.deps)
						p = r.dial(t, same)
					case "plugin":
						_ = p.Close()
						p = r.dial(t, same)
					}
					if who != "nobody" {
						h = begin(t, p, "r", cfg, got...)
					}
				}
				a := step(t, p, h, at, row)
				want(t, a, choice.Token)
				got = append(got, a.Token)
			}
			for i := range ref {
				if got[i] != ref[i] {
					t.Fatalf("token %d is %d, want %d", i, got[i], ref[i])
				}
			}
			s := finish(t, follow(t, r, "r"))
			resumed := 0
			if who == "sidecar" {
				resumed = 1
			}
			if len(s.ContinuedAt) != resumed || s.Mismatched != 0 {
				t.Errorf("continued at %v, %d mismatched", s.ContinuedAt, s.Mismatched)
			}
		})
	}
}

// TestForeignHistory holds that the engine's own word on what was said wins, and is counted.
func TestForeignHistory(t *testing.T) {
	r := start(t, nil)
	p := r.dial(t, func(o *sidecartest.Options) { o.Session = "one" })
	h := begin(t, p, "h", seeded)
	var got []int32
	for at := range 4 {
		got = append(got, step(t, p, h, at, logits(vocab, 1, at)).Token)
	}
	got[2]++
	h = begin(t, p, "h", seeded, append(got, -1, 9)...)
	want(t, step(t, p, h, 6, logits(vocab, 1, 6)), choice.Token)
	if s := finish(t, follow(t, r, "h")); s.Mismatched != 1 || r.Stats().Mismatched != 1 {
		t.Errorf("%d and %d mismatched, want 1", s.Mismatched, r.Stats().Mismatched)
	}
}

// TestPolicies holds what becomes of a source that fails, under each policy.
func TestPolicies(t *testing.T) {
	gone := &entropy.Error{Kind: entropy.KindClosed, Source: "lab", Message: "the lab is closed"}
	for name, c := range map[string]struct {
		lab  lab
		want choice.Status
		says string
	}{
		"strict": {lab{"strict", func(context.Context, []byte) (sampler.Block, error) { return sampler.Block{}, gone }}, choice.Stop, "the lab is closed"},
		"late": {lab{"strict", func(ctx context.Context, _ []byte) (sampler.Block, error) {
			<-ctx.Done()
			return sampler.Block{}, ctx.Err()
		}}, choice.Stop, "deadline"},
		"fallback": {lab{"fallback", func(_ context.Context, buf []byte) (sampler.Block, error) {
			bytes(buf)
			return sampler.Block{Source: "second", Fallback: true}, nil
		}}, choice.Token, ""},
		"observe": {lab{"observe", func(_ context.Context, buf []byte) (sampler.Block, error) {
			bytes(buf)
			return sampler.Block{Source: "lab", Flags: []string{"drift"}}, nil
		}}, choice.Token, ""},
		"panic": {lab{"strict", func(context.Context, []byte) (sampler.Block, error) { panic("a defect") }}, choice.Stop, "defect"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(cfg *Config, d *Deps) {
				d.Sources = &c.lab
				if name == "late" {
					cfg.Deadline = 20 * time.Millisecond
				}
			})
			p := r.dial(t, nil)
			well := begin(t, p, "well", seeded)
			f := follow(t, r, "p")
			h := begin(t, p, "p", fromLab)
			got, err := p.Step(p.Compact(well, 0, logits(vocab, 1, 0)), p.Compact(h, 0, logits(vocab, 1, 0)))
			if err != nil {
				t.Fatal(err)
			}
			want(t, got[0], choice.Token)
			want(t, got[1], c.want)
			n := next(t, f)
			if c.want == choice.Stop && (n.Err == nil || !strings.Contains(n.Err.Error(), c.says) || name != "panic" && n.Err.Kind != backends.KindEntropy) {
				t.Errorf("followed %+v with error %v", n, n.Err)
			}
			s := finish(t, f)
			switch name {
			case "fallback":
				if len(s.Records) != 1 || !s.Records[0].Fallback || s.FallbackTokens != 1 || s.Policy != "fallback" || s.EntropySource != "lab" {
					t.Errorf("account %+v", s)
				}
			case "observe":
				if s.FlaggedTokens["drift"] != 1 {
					t.Errorf("account %+v", s)
				}
			case "late":
				if r.Stats().Late != 1 {
					t.Errorf("%d late, want 1", r.Stats().Late)
				}
			}
		})
	}
}

// TestSlowSourceIsAskedAtOnce holds that the numbers of a step's rows are waited for together.
func TestSlowSourceIsAskedAtOnce(t *testing.T) {
	const rows = 32
	var asked sync.WaitGroup
	asked.Add(rows)
	r := start(t, func(_ *Config, d *Deps) {
		d.Sources = &lab{"strict", func(_ context.Context, buf []byte) (sampler.Block, error) {
			asked.Done()
			asked.Wait() // nobody gets a byte before all have asked
			bytes(buf)
			return sampler.Block{Source: "lab"}, nil
		}}
	})
	p := r.dial(t, nil)
	var shown []wire.Shown
	for i := range rows {
		shown = append(shown, p.Compact(begin(t, p, fmt.Sprint(i), fromLab), 0, logits(vocab, uint64(i), 0)))
	}
	got, err := p.Step(shown...)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range got {
		want(t, a, choice.Token)
	}
}

// TestSessionsAtOnce holds that plugins don't disturb each other, nor rows in one step.
func TestSessionsAtOnce(t *testing.T) {
	const sessions, requests, steps = 4, 8, 20
	r := start(t, nil)
	var all sync.WaitGroup
	for k := range sessions {
		p := r.dial(t, nil)
		all.Go(func() {
			if err := chat(p, k, requests, steps); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if s := r.Stats(); s.Tokens != sessions*requests*steps || s.Sessions != sessions || s.Live != sessions*requests {
		t.Errorf("%+v", s)
	}
	if n := len(r.Engines()); n != sessions {
		t.Errorf("%d engines, want %d", n, sessions)
	}
}

// chat runs requests side by side and compares their tokens with those of one stream each.
func chat(p *sidecartest.Plugin, k, requests, steps int) error {
	var handles []uint32
	for i := range requests {
		h, err := p.Begin(fmt.Sprintf("%d-%d", k, i), fmt.Sprintf(`{"qr_seed":%d}`, 100*k+i), nil, nil)
		if err != nil {
			return err
		}
		handles = append(handles, h)
	}
	for at := range steps {
		row := logits(vocab, uint64(k), at)
		var shown []wire.Shown
		for i, h := range handles {
			shown = append(shown, p.Shared(h, at, i, row))
		}
		got, err := p.Step(shown...)
		if err != nil {
			return err
		}
		for i, a := range got {
			params := sampler.Defaults()
			seed := int64(100*k + i)
			u, _ := sampler.NewSeeded(seed).One(context.Background(), at)
			d, err := sampler.New(vocab).Choose(row, nil, params.Cut(), u)
			if err != nil || d.Token != a.Token {
				return fmt.Errorf("session %d, request %d, token %d is %d, want %d: %w", k, i, at, a.Token, d.Token, err)
			}
		}
	}
	return nil
}

// TestRequestsAreForgotten holds that what nobody asks for any more is not kept, and that one that is shown again begins again.
func TestRequestsAreForgotten(t *testing.T) {
	now := time.Now()
	b := newBook(time.Minute, 2)
	at := func(rid string) *entry {
		e, forget := b.at(rid, now)
		forget.forget()
		return e
	}
	a := at("a")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	followed := at("b").trail.follow(0)
	if at("c") == nil || b.rids["a"] != nil {
		t.Error("the oldest that nobody follows did not make room")
	}
	if _, err := a.trail.next(ctx, a.trail.follow(0)); !errors.Is(err, io.EOF) {
		t.Errorf("the trail of a forgotten answer: %v, want io.EOF", err)
	}
	b.sweep(now.Add(time.Minute))
	if b.size() != 1 {
		t.Errorf("%d kept after a minute, want the followed one", b.size())
	}
	b.rids["b"].trail.leave(followed)
	b.sweep(now.Add(time.Minute))
	if b.size() != 0 {
		t.Errorf("%d kept, want none", b.size())
	}
}

func TestFullBook(t *testing.T) {
	r := start(t, func(cfg *Config, _ *Deps) { cfg.Requests = 2 })
	p := r.dial(t, nil)
	for _, rid := range []string{"a", "b"} {
		want(t, step(t, p, begin(t, p, rid, seeded), 0, logits(vocab, 1, 0)), choice.Token)
	}
	h := begin(t, p, "c", seeded)
	want(t, step(t, p, h, 0, logits(vocab, 1, 0)), choice.Stop)
	if err := p.End(1); err != nil {
		t.Fatal(err)
	}
	want(t, step(t, p, begin(t, p, "d", seeded), 0, logits(vocab, 1, 0)), choice.Token)
}

func TestFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr trail
		first := tr.follow(0)
		ended := make(chan error, 1)
		go func() {
			_, err := tr.next(context.Background(), first)
			ended <- err
		}()
		synctest.Wait()
		second := tr.follow(2)
		if err := <-ended; !errors.Is(err, ErrFollowed) {
			t.Errorf("the former follower: %v, want ErrFollowed", err)
		}
		for at := range 4 {
			tr.push(&choice.Choice{Step: at, Token: 1})
			tr.push(&choice.Choice{Step: at, Token: 2, Void: 1})
		}
		tr.finish()
		for at := 2; at < 4; at++ {
			if c, err := tr.next(context.Background(), second); err != nil || c.Step != at || c.Token != 2 {
				t.Errorf("choice %+v, %v; want the last of step %d", c, err, at)
			}
		}
		if _, err := tr.next(context.Background(), second); !errors.Is(err, io.EOF) {
			t.Errorf("%v, want io.EOF", err)
		}
	})
}

func TestTrailIsBounded(t *testing.T) {
	for _, follows := range []bool{false, true} {
		var tr trail
		most := unfollowed
		if follows {
			tr.follow(0)
			most = 4096
		}
		for at := range 3 * 4096 {
			tr.push(&choice.Choice{Step: at})
			if len(tr.kept) > most {
				t.Fatalf("%d choices kept, at most %d", len(tr.kept), most)
			}
		}
		c, ok, err := tr.take(tr.follow(0))
		if !ok || err != nil || c.Step < 2*4096 {
			t.Errorf("the oldest kept is %+v, %v", c, err)
		}
	}
}

// closed can't be opened: it waits until the time is up.
type closed struct{}

func (closed) Open(ctx context.Context, _ string, _ hub.Blocks) (supply.Opened, error) {
	<-ctx.Done()
	return supply.Opened{}, ctx.Err()
}

// TestSourceThatDoesNotOpen holds that neither a row nor the next one waits longer than a step may, and that the reason is told.
func TestSourceThatDoesNotOpen(t *testing.T) {
	r := start(t, func(cfg *Config, d *Deps) { cfg.Deadline, d.Sources = 10*time.Millisecond, closed{} })
	p := r.dial(t, nil)
	f := follow(t, r, "w")
	h := begin(t, p, "w", fromLab)
	want(t, step(t, p, h, 0, logits(vocab, 1, 0)), choice.Stop)
	want(t, step(t, p, h, 1, logits(vocab, 1, 0)), choice.Stop)
	if c := next(t, f); c.Err == nil || c.Err.Kind != backends.KindEntropy || !strings.Contains(c.Err.Error(), "deadline") {
		t.Errorf("followed %+v, error %v", c, c.Err)
	}
	if s := finish(t, f); s.Tokens != 0 {
		t.Errorf("account %+v", s)
	}
}
