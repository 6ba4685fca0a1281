package vllm_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/sidecar"
	"qr-gateway/backends/vllm/vllmtest"
)

// unsure makes the next check probe a server that samples, by a request of which the sidecar hears nothing.
func unsure(t *testing.T, r *rig) {
	t.Helper()
	r.side.Script(at(1, vllmtest.Move{Unsaid: true}))
	ask(t.Context(), r, chat(false, "")).fails(t, backends.KindUnavailable, "sampler_unavailable")
	r.side.Script(func(string, int) vllmtest.Move { return vllmtest.Move{} })
}

// isProbe says that a body is one's.
func isProbe(body []byte) bool {
	return strings.Contains(string(body), `"prompt":"Hello","max_tokens":1`)
}

// TestFullServerStillSamples holds that a probe that a full or ailing server refuses takes nothing from what was found before.
func TestFullServerStillSamples(t *testing.T) {
	for name, status := range map[string]int{"full": 503, "limited": 429, "ailing": 500} {
		t.Run(name, func(t *testing.T) {
			r := sampling(t, vllmtest.Options{}, short)
			n := r.Counts().Probes
			r.far.Set(func(o *vllmtest.Options) {
				o.Refuse = func(body []byte) (int, string) {
					if isProbe(body) {
						return status, `{"error":{"message":"queue is full","code":503}}`
					}
					return 0, ""
				}
			})
			unsure(t, r)
			r.until(t, "probed in vain", func(backends.Info) bool { return strings.Contains(r.log.String(), "can't be probed") })
			if why := r.Info().Unsampled; why != "" {
				t.Errorf("it does not sample: %s", why)
			}
			ask(t.Context(), r, chat(false, "")).well(t)
			r.far.Set(func(o *vllmtest.Options) { o.Refuse, o.Plugin = nil, false })
			r.until(t, "probed again, and found to have no plugin", func(i backends.Info) bool { return i.Unsampled != "" })
			if again := r.Counts().Probes - n; again > 4 {
				t.Errorf("it was probed %d times", again)
			}
		})
	}
}

// TestRefusedProbe holds that a server that says that it can't is believed, though it sampled before.
func TestRefusedProbe(t *testing.T) {
	r := sampling(t, vllmtest.Options{}, short)
	r.far.Set(func(o *vllmtest.Options) {
		o.Refuse = func(body []byte) (int, string) {
			if isProbe(body) {
				return 400, `{"error":{"message":"qr_v is 1; this plugin takes 2","code":400}}`
			}
			return 0, ""
		}
	})
	unsure(t, r)
	r.until(t, "found to take another version", func(i backends.Info) bool { return strings.Contains(i.Unsampled, "this plugin takes 2") })
}

// TestFoundOut holds that what speaks against sampling is believed of a server that sampled before.
func TestFoundOut(t *testing.T) {
	for name, c := range map[string]struct {
		script func(string, int) vllmtest.Move
		refuse error
		noIDs  bool
		why    string
	}{
		"stopped":         {script: from(0, vllmtest.Move{Status: choice.Stop}), why: "stopped by the sidecar"},
		"sidecar is away": {refuse: errors.New("no such socket"), why: "the sidecar can't be asked"},
		"unnamed":         {noIDs: true, why: "take vLLM 0.10.2 or later"},
		"left to vLLM":    {script: from(0, vllmtest.Move{Status: choice.Native}), why: "left a probe's token to vLLM"},
	} {
		t.Run(name, func(t *testing.T) {
			r := sampling(t, vllmtest.Options{}, short)
			if c.script != nil {
				r.side.Script(c.script)
			}
			r.side.Refuse(c.refuse)
			r.far.Set(func(o *vllmtest.Options) { o.NoIDs = c.noIDs })
			r.side.Restart("second") // the probe's doing, not a request's
			r.until(t, "found out", func(i backends.Info) bool { return strings.Contains(i.Unsampled, c.why) })
		})
	}
}

// TestProbeWaits holds that health and load are looked at while a probe waits in the server's line.
func TestProbeWaits(t *testing.T) {
	r := sampling(t, vllmtest.Options{Metrics: someMetrics}, short)
	held := make(chan struct{}, 8)
	r.far.Set(func(o *vllmtest.Options) {
		o.Hold = func(q *http.Request, _ int) {
			if !strings.HasSuffix(q.URL.Path, "/chat/completions") {
				held <- struct{}{}
				<-q.Context().Done()
			}
		}
	})
	unsure(t, r)
	<-held
	load := r.Info().Load
	r.far.Set(func(o *vllmtest.Options) { o.Metrics = strings.ReplaceAll(someMetrics, "3.0", "0") })
	r.until(t, "less loaded", func(i backends.Info) bool { return i.Load < load })
	r.far.Set(func(o *vllmtest.Options) { o.Health = http.StatusServiceUnavailable })
	r.until(t, "away", func(i backends.Info) bool { return !i.Ready })
	if n := len(held); n != 0 {
		t.Errorf("%d more probes are under way", n)
	}
}

// TestFirstProbeWaits holds that a server is ready for plain requests though its first probe waits.
func TestFirstProbeWaits(t *testing.T) {
	hold := func(q *http.Request, _ int) {
		if !strings.HasSuffix(q.URL.Path, "/chat/completions") {
			<-q.Context().Done()
		}
	}
	r := start(t, vllmtest.Options{Plugin: true, Hold: hold}, func(c *vllm.Config) { c.Health.Timeout = 200 * time.Millisecond })
	q := chat(false, "")
	q.Sampled = false
	ask(t.Context(), r, q).well(t)
	ask(t.Context(), r, chat(false, "")).fails(t, backends.KindUnavailable, "sampler_unavailable")
}

// TestNoLogprobs holds that a server that gives no log-probabilities samples all the same.
func TestNoLogprobs(t *testing.T) {
	r := sampling(t, vllmtest.Options{Unlog: true}, nil)
	ask(t.Context(), r, chat(true, "")).well(t)
}

// TestAddressIsKept holds that whoever asks is not told where the sidecar is, and that the log is.
func TestAddressIsKept(t *testing.T) {
	const address = "127.0.0.1:1"
	cfg := sidecar.DefaultClientConfig()
	cfg.Address, cfg.Insecure = address, true
	away, err := sidecar.NewClient(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- away.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	for _, probe := range []bool{true, false} {
		r := &rig{side: vllmtest.NewSampler(), log: &syncBuffer{}}
		r.far = vllmtest.NewServer(t, vllmtest.Options{Model: "there", Plugin: true}, r.side)
		c := config(r.far.URL)
		c.Probe = probe
		if r.Backend, err = vllm.New(c, vllm.Deps{Choices: away, Log: r.logger()}); err != nil {
			t.Fatal(err)
		}
		running(t, r.Backend)
		i := r.until(t, "ready", func(i backends.Info) bool { return i.Ready })
		e := ask(t.Context(), r, chat(false, "")).failure(t, backends.KindUnavailable, "sampler_unavailable")
		if text := i.Unsampled + i.Reason + e.Error(); strings.Contains(text, address) || !strings.Contains(e.Message, "the sidecar can't be asked") {
			t.Errorf("probe %t: %s", probe, text)
		}
		if probe && !strings.Contains(r.log.String(), address) {
			t.Errorf("the log does not say where:\n%s", r.log)
		}
	}
}

// TestFullSidecar holds that a sidecar that is full refuses requests, and that the server samples those that come when it isn't.
func TestFullSidecar(t *testing.T) {
	r := sampling(t, vllmtest.Options{}, short)
	r.side.Refuse(&backends.Error{Kind: backends.KindUnavailable, Code: "sidecar_full", Message: "the sidecar has as many requests as it may keep"})
	if e := ask(t.Context(), r, chat(false, "")).failure(t, backends.KindUnavailable, "sampler_unavailable"); !strings.Contains(e.Message, "too many requests") {
		t.Errorf("message %q", e.Message)
	}
	r.until(t, "probed in vain", func(backends.Info) bool { return strings.Contains(r.log.String(), "can't be probed") })
	r.side.Refuse(nil)
	ask(t.Context(), r, chat(false, "")).well(t)
}
