package sidecar

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/sidecar/sidecartest"
	"qr-gateway/backends/vllm/wire"
	"qr-gateway/entropy"
	"qr-gateway/sampler"
)

// napping is a source that misses the deadline of some draws.
type napping struct {
	lab
	draws atomic.Int64
}

func nap(policy string, late ...int) *napping {
	n := &napping{}
	n.lab = lab{policy, func(ctx context.Context, buf []byte) (sampler.Block, error) {
		if slices.Contains(late, int(n.draws.Add(1))-1) {
			<-ctx.Done()
			return sampler.Block{}, &entropy.Error{Kind: entropy.KindTimeout, Source: "lab", Message: "nothing came", Err: ctx.Err()}
		}
		bytes(buf)
		return sampler.Block{Source: "lab"}, nil
	}}
	return n
}

// noted keeps what is logged.
func noted(text *strings.Builder) *slog.Logger {
	return slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// sleepy is a sidecar with that source, whose steps have as much time as a draw that comes needs on a busy machine.
func sleepy(t *testing.T, n *napping, text *strings.Builder) (*running, *sidecartest.Plugin) {
	t.Helper()
	r := start(t, func(cfg *Config, d *Deps) { cfg.Deadline, d.Sources, d.Log = 500*time.Millisecond, n, noted(text) })
	return r, r.dial(t, nil)
}

// TestLateNumbers holds what becomes of a number that is late, by the request's wish and the source's policy.
func TestLateNumbers(t *testing.T) {
	for name, c := range map[string]struct {
		policy string
		fail   wire.Fail
		want   choice.Status
		warned bool
	}{
		"strict, native":   {"strict", wire.FailNative, choice.Stop, false},
		"observe, native":  {"observe", wire.FailNative, choice.Native, false},
		"observe, stop":    {"observe", wire.FailStop, choice.Stop, false},
		"fallback, native": {"fallback", wire.FailNative, choice.Native, true},
		"fallback, stop":   {"fallback", wire.FailStop, choice.Stop, true},
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			r, p := sleepy(t, nap(c.policy, 1, 3), &text)
			p.Fail = c.fail
			f := follow(t, r, "n")
			h := begin(t, p, "n", fromLab)
			native := 0
			for at, want := range []choice.Status{choice.Token, c.want, choice.Token, c.want, choice.Token} {
				if at > 1 && c.want == choice.Stop {
					want = choice.Stop
				}
				a := step(t, p, h, at, logits(vocab, 1, at))
				if choice.Status(a.Status) != want {
					t.Fatalf("token %d is %v, want %v", at, choice.Status(a.Status), want)
				}
				if at > 1 && want == choice.Stop {
					continue // it is told once
				}
				got := next(t, f)
				if got.Step != at || got.Status != want || (got.Err == nil) != (want == choice.Token) {
					t.Errorf("followed %+v, error %v; want step %d, %v", got, got.Err, at, want)
				}
				if want == choice.Native {
					native++
					if got.Err.Kind != backends.KindEntropy || !strings.Contains(got.Err.Error(), "deadline") {
						t.Errorf("the reason is %v", got.Err)
					}
				}
			}
			late := uint64(max(native, 1))
			if s := r.Stats(); s.Late != late || s.Native != uint64(native) {
				t.Errorf("%d late, %d of them native; want %d, %d", s.Late, s.Native, late, native)
			}
			if s := finish(t, f); s.Native != native || c.want == choice.Native && s.Tokens != 3 {
				t.Errorf("%d tokens, %d native; want %d native", s.Tokens, s.Native, native)
			}
			r.stop()
			if n := strings.Count(text.String(), "second choice"); n > 1 || (n == 1) != c.warned {
				t.Errorf("the log says %q", text.String())
			}
		})
	}
}

// TestNativeTokenIsLearnt holds that the next step, or the plugin's history, tells the token, and that nothing of it is counted or told twice.
func TestNativeTokenIsLearnt(t *testing.T) {
	var text strings.Builder
	r := start(t, func(cfg *Config, d *Deps) {
		cfg.Deadline, d.Sources, d.Log = 500*time.Millisecond, nap("observe", 1), noted(&text)
	})
	same := func(o *sidecartest.Options) { o.Session = "one" }
	p := r.dial(t, same)
	p.Fail = wire.FailNative
	f := follow(t, r, "l")
	h := begin(t, p, "l", fromLab)
	first := step(t, p, h, 0, logits(vocab, 1, 0))
	want(t, first, choice.Token)
	for range 2 { // it is shown again, and not drawn for again
		want(t, step(t, p, h, 1, logits(vocab, 1, 1)), choice.Native)
	}
	_ = p.Close()
	p = r.dial(t, same)
	p.Fail = wire.FailNative
	h = begin(t, p, "l", fromLab, first.Token, 77)
	want(t, step(t, p, h, 2, logits(vocab, 1, 2)), choice.Token)
	for at, s := range []choice.Status{choice.Token, choice.Native, choice.Token} {
		if c := next(t, f); c.Step != at || c.Status != s {
			t.Errorf("followed %+v, want step %d, %v", c, at, s)
		}
	}
	if s := finish(t, f); s.Native != 1 || s.Tokens != 2 || s.Mismatched != 0 {
		t.Errorf("%d native, %d tokens, %d mismatched; want 1, 2, 0", s.Native, s.Tokens, s.Mismatched)
	}
}

// TestVoidNative holds that a row that didn't count takes its label back.
func TestVoidNative(t *testing.T) {
	var text strings.Builder
	r, p := sleepy(t, nap("observe", 0), &text)
	p.Fail = wire.FailNative
	h := begin(t, p, "v", fromLab)
	want(t, step(t, p, h, 0, logits(vocab, 1, 0)), choice.Native)
	want(t, step(t, p, h, 0, logits(vocab, 2, 0)), choice.Token)
	if s := finish(t, follow(t, r, "v")); s.Native != 0 || s.Tokens != 1 {
		t.Errorf("%d native, %d tokens; want 0, 1", s.Native, s.Tokens)
	}
}

// high are bytes whose number is near 1: it falls into the tail of a row.
func high(_ context.Context, buf []byte) (sampler.Block, error) {
	for i := range buf {
		buf[i] = 200
	}
	return sampler.Block{Source: "lab"}, nil
}

// TestVoidOfAskedRow holds that the number of a row that was asked for whole, and then was not the one that counted, is accounted for.
func TestVoidOfAskedRow(t *testing.T) {
	r := start(t, func(cfg *Config, d *Deps) { cfg.Top, d.Sources = 4, &lab{"strict", high} })
	p := r.dial(t, nil)
	for _, then := range []string{"another row", "a later step", "the end"} {
		f := follow(t, r, then)
		h := begin(t, p, then, `{"qr_entropy_source":"lab","qr_sample_count":64,"qr_temperature":1,"qr_top_p":1,"qr_top_k":0,"qr_min_p":0}`)
		want(t, one(t, p, p.Compact(h, 0, logits(vocab, 2, 0))), choice.Whole)
		tokens := 1
		switch then {
		case "another row":
			want(t, one(t, p, p.Shared(h, 0, 0, logits(vocab, 1, 0))), choice.Token)
		case "a later step":
			want(t, one(t, p, p.Shared(h, 1, 0, logits(vocab, 1, 0))), choice.Token)
		default:
			tokens = 0
		}
		if s := finish(t, f); s.Discarded != 1 || s.Tokens != tokens {
			t.Errorf("%s: %d discarded, %d tokens; want 1, %d", then, s.Discarded, s.Tokens, tokens)
		}
	}
}

// TestRowsAfterTheEnd holds that what vLLM still shows of an answer whose client has left is no cause for alarm.
func TestRowsAfterTheEnd(t *testing.T) {
	var text strings.Builder
	r := start(t, func(_ *Config, d *Deps) { d.Log = noted(&text) })
	p := r.dial(t, nil)
	h := begin(t, p, "e", seeded)
	want(t, step(t, p, h, 0, logits(vocab, 1, 0)), choice.Token)
	finish(t, follow(t, r, "e"))
	want(t, step(t, p, h, 1, logits(vocab, 1, 1)), choice.Stop)
	if n := r.Stats().Rejected; n != 0 {
		t.Errorf("%d rejected, want none", n)
	}
	r.stop()
	if text.Len() > 0 {
		t.Errorf("the log says %s", text.String())
	}
}
