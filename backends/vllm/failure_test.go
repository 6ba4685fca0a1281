package vllm_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/vllmtest"
)

// at makes something happen at one step of every request.
func at(step int, m vllmtest.Move) func(string, int) vllmtest.Move {
	return func(_ string, now int) vllmtest.Move {
		if now == step {
			return m
		}
		return vllmtest.Move{}
	}
}

// from makes it happen from that step on.
func from(step int, m vllmtest.Move) func(string, int) vllmtest.Move {
	return func(_ string, now int) vllmtest.Move {
		if now >= step {
			return m
		}
		return vllmtest.Move{}
	}
}

// until makes it end at that step.
func until(step int, script func(string, int) vllmtest.Move) func(string, int) vllmtest.Move {
	return func(rid string, now int) vllmtest.Move {
		if now >= step {
			return vllmtest.Move{}
		}
		return script(rid, now)
	}
}

func short(c *vllm.Config) { c.ChoiceWait = 50 * time.Millisecond }

func lenient(c *vllm.Config) {
	short(c)
	c.Fail = vllm.FailNative
}

// TestAmiss holds what becomes of tokens that the sidecar did not choose: an error of a kind, or a number.
func TestAmiss(t *testing.T) {
	slow := &backends.Error{Kind: backends.KindEntropy, Code: "entropy_unavailable", Message: "nothing came in time"}
	broken := &backends.Error{Kind: backends.KindModel, Code: "broken_logits", Message: "the row is no numbers"}
	for name, c := range map[string]struct {
		script     func(string, int) vllmtest.Move
		change     func(*vllm.Config)
		kind       backends.Kind
		code       string
		native     int
		mismatched int
		visible    int // tokens that the client got before an error
	}{
		"a void draw":             {script: at(2, vllmtest.Move{Void: true}), change: short},
		"a void draw first":       {script: at(0, vllmtest.Move{Void: true}), change: short},
		"a void draw at the end":  {script: at(5, vllmtest.Move{Void: true}), change: short},
		"another token, strict":   {script: at(2, vllmtest.Move{Wrong: true}), change: short, kind: backends.KindUpstream, code: "token_mismatch", visible: 2},
		"another first token":     {script: at(0, vllmtest.Move{Wrong: true}), change: short, kind: backends.KindUpstream, code: "token_mismatch"},
		"another token, counted":  {script: at(2, vllmtest.Move{Wrong: true}), change: func(c *vllm.Config) { short(c); c.Mismatch = vllm.MismatchCount }, mismatched: 1},
		"another token, lenient":  {script: until(5, from(2, vllmtest.Move{Wrong: true})), change: lenient, mismatched: 3},
		"lenient, but not for it": {script: at(2, vllmtest.Move{Wrong: true}), change: func(c *vllm.Config) { lenient(c); c.Mismatch = vllm.MismatchError }, kind: backends.KindUpstream, code: "token_mismatch", visible: 2},
		"unheard, strict":         {script: at(3, vllmtest.Move{Unsaid: true}), change: short, kind: backends.KindUnavailable, code: "sampler_unavailable", visible: 3},
		"unheard from the first":  {script: from(0, vllmtest.Move{Unsaid: true}), change: short, kind: backends.KindUnavailable, code: "sampler_unavailable"},
		"unheard, lenient":        {script: at(3, vllmtest.Move{Unsaid: true}), change: lenient, native: 1},
		"all unheard, lenient":    {script: from(0, vllmtest.Move{Unsaid: true}), change: lenient, native: 6},
		"left alone":              {script: at(1, vllmtest.Move{Status: choice.Native}), change: short, kind: backends.KindUnavailable, code: "sampler_unavailable", visible: 1},
		"left alone at first":     {script: at(0, vllmtest.Move{Status: choice.Native}), change: short, kind: backends.KindUnavailable, code: "sampler_unavailable"},
		"left alone, lenient":     {script: at(1, vllmtest.Move{Status: choice.Native}), change: lenient, native: 1},
		"late":                    {script: at(1, vllmtest.Move{Status: choice.Native, Err: slow}), change: short, kind: backends.KindUnavailable, code: "sampler_unavailable", visible: 1},
		"nothing to choose from":  {script: at(1, vllmtest.Move{Status: choice.Illegal}), change: short, kind: backends.KindUnavailable, code: "sampler_unavailable", visible: 1},
		"a broken row":            {script: at(1, vllmtest.Move{Status: choice.Illegal, Err: broken}), change: short, kind: backends.KindModel, code: "broken_logits", visible: 1},
		"a broken row, lenient":   {script: at(1, vllmtest.Move{Status: choice.Illegal, Err: broken}), change: lenient, native: 1},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stream %t", name, stream), func(t *testing.T) {
				r := sampling(t, vllmtest.Options{}, c.change)
				r.side.Script(c.script)
				o := ask(t.Context(), r, chat(stream, ""))
				if c.kind != "" {
					o.fails(t, c.kind, c.code)
					if tokens := strings.Count(strings.Join(o.raw, ""), " t"); stream && tokens != c.visible || len(o.raw) > 0 && c.visible == 0 {
						t.Errorf("the client got %q before the error, want %d tokens", o.raw, c.visible)
					}
				} else if o.well(t); o.res.Stats.Native != c.native || o.res.Stats.Mismatched != c.mismatched {
					t.Errorf("stats %+v, want %d native and %d mismatched", o.res.Stats, c.native, c.mismatched)
				}
				if n := r.Counts(); c.kind == "" && (n.Native != uint64(c.native) || n.Mismatched != uint64(c.mismatched)) {
					t.Errorf("counts %+v", n)
				}
				if n := strings.Count(r.log.String(), "chosen") + strings.Count(r.log.String(), "chose no token"); n > 1+strings.Count(r.log.String(), " chosen=") {
					t.Errorf("it was logged %d times:\n%s", n, r.log)
				}
				r.idle(t)
			})
		}
	}
}

// TestUnnamed holds what becomes of text whose tokens the server does not name.
func TestUnnamed(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			r := sampling(t, vllmtest.Options{Unnamed: 2}, short)
			o := ask(t.Context(), r, chat(stream, ""))
			o.fails(t, backends.KindUnavailable, "sampler_unavailable")
			if n := strings.Count(strings.Join(o.raw, ""), " t"); stream && n != 2 || !stream && n != 0 {
				t.Errorf("the client got %q", o.raw)
			}
			r.idle(t)
		})
	}
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprint("lenient, no usage ", silent), func(t *testing.T) {
			r := sampling(t, vllmtest.Options{Unnamed: 2, Silent: silent}, lenient)
			want := 4
			if silent {
				want = 3 // with text: the end has none
			}
			if s := ask(t.Context(), r, chat(true, "")).well(t).res.Stats; s.Native != want || s.Tokens != 2 || r.Counts().Native != uint64(want) {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// TestUnseen holds that an answer with more tokens than were named is no answer, though all text has tokens.
func TestUnseen(t *testing.T) {
	r := sampling(t, vllmtest.Options{}, short)
	r.far.Set(func(o *vllmtest.Options) { o.More = 2 })
	o := ask(t.Context(), r, chat(true, ""))
	o.fails(t, backends.KindUnavailable, "sampler_unavailable")
	if text := strings.Join(o.raw, ""); strings.Contains(text, `"stop"`) {
		t.Errorf("the client got the end of it: %q", o.raw)
	}
}

// TestSidecarLost holds that a sidecar that is lost is nothing that the server did.
func TestSidecarLost(t *testing.T) {
	r := sampling(t, vllmtest.Options{}, short)
	why := &backends.Error{Kind: backends.KindUnavailable, Code: "sidecar_lost", Message: "the connection ended", Hint: "send the request again"}
	for _, step := range []int{0, 3} {
		r.side.Script(at(step, vllmtest.Move{Status: choice.Stop, Err: why}))
		o := ask(t.Context(), r, chat(false, ""))
		if e := o.failure(t, backends.KindUnavailable, "sampler_unavailable"); !strings.Contains(e.Message, why.Message) || e.Hint != why.Hint || !errors.Is(e, why) {
			t.Errorf("it came to %v", e)
		}
	}
}

// TestStopped holds that the sidecar's stop ends the request soon, with its own error, although the server would go on for good.
func TestStopped(t *testing.T) {
	why := &backends.Error{Kind: backends.KindEntropy, Code: "entropy_unavailable", Param: "qr_entropy_source", Message: "device unplugged"}
	for _, stream := range []bool{true, false} {
		for _, step := range []int{0, 3} {
			t.Run(fmt.Sprintf("stream %t, step %d", stream, step), func(t *testing.T) {
				r := sampling(t, vllmtest.Options{}, short)
				r.far.Set(func(o *vllmtest.Options) {
					o.Hold = func(q *http.Request, now int) {
						if now > step {
							<-q.Context().Done()
						}
					}
				})
				r.side.Script(at(step, vllmtest.Move{Status: choice.Stop, Err: why}))
				o := ask(t.Context(), r, chat(stream, `,"ignore_eos":true`))
				if e := o.failure(t, backends.KindEntropy, "entropy_unavailable"); e.Message != why.Message || stream && strings.Count(strings.Join(o.raw, ""), " t") != step || step == 0 && len(o.raw) > 0 {
					t.Errorf("got %v after %q", e, o.raw)
				}
				r.idle(t)
			})
		}
	}
	r := sampling(t, vllmtest.Options{Group: 100, Length: 1000}, short)
	r.side.Script(at(1, vllmtest.Move{Status: choice.Stop, Deaf: true}))
	r.far.Set(func(o *vllmtest.Options) {
		o.Hold = func(q *http.Request, now int) {
			if now > 5 {
				<-q.Context().Done()
			}
		}
	})
	ask(t.Context(), r, chat(true, "")).fails(t, backends.KindUnavailable, "sampler_unavailable")
}

// TestCancel holds that a client that leaves ends the request there, at whatever step, for all choices.
func TestCancel(t *testing.T) {
	for _, stream := range []bool{true, false} {
		r := sampling(t, vllmtest.Options{Length: 1000}, nil)
		held := make(chan struct{}, 3)
		r.far.Set(func(o *vllmtest.Options) {
			o.Hold = func(q *http.Request, step int) {
				if step == 2 {
					held <- struct{}{}
					<-q.Context().Done()
				}
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan outcome, 1)
		go func() { done <- ask(ctx, r, chat(stream, `,"n":3`)) }()
		for range 3 {
			<-held
		}
		cancel()
		if o := <-done; !errors.Is(o.err, context.Canceled) {
			t.Errorf("it came to %v", o.err)
		}
		r.idle(t)
		r.until(t, "left there", func(backends.Info) bool { return r.far.Left() == 3 })
	}
}

// TestClientGone holds that a client that can't be written to ends the request.
func TestClientGone(t *testing.T) {
	gone := errors.New("the client is gone")
	r := sampling(t, vllmtest.Options{Length: 1000}, nil)
	n := 0
	o := askWith(t.Context(), r, chat(true, `,"n":2`), func(e backends.Event) error {
		if n++; n > 4 {
			return gone
		}
		return nil
	})
	if !errors.Is(o.err, gone) || n != 5 {
		t.Errorf("it came to %v after %d events", o.err, n)
	}
	r.idle(t)
}

// TestRefusals holds what is refused before anything is sent.
func TestRefusals(t *testing.T) {
	r := sampling(t, vllmtest.Options{}, nil)
	ahead := chat(false, "")
	ahead.Params.Alpha = new(0.3)
	long := chat(false, "")
	long.Params.EntropySource = strings.Repeat("x", 1<<16)
	for name, c := range map[string]struct {
		q     *backends.Request
		param string
	}{
		"look-ahead":       {ahead, "qr_decoder"},
		"echo":             {text(`,"prompt":"a","echo":true`), "echo"},
		"beams":            {chat(false, `,"use_beam_search":true`), "use_beam_search"},
		"no reasoning":     {chat(false, `,"include_reasoning":false`), "include_reasoning"},
		"best of":          {text(`,"prompt":"a","best_of":3`), "best_of"},
		"too many":         {chat(false, `,"n":129`), "n"},
		"too many of each": {text(`,"n":65,"prompt":["a","b"]`), "n"},
		"none":             {chat(false, `,"n":0`), "n"},
		"a text":           {chat(false, `,"n":"3"`), "n"},
		"a fraction":       {chat(false, `,"n":1.5`), "n"},
		"endless cfg":      {long, "logit_bias"},
	} {
		o := ask(t.Context(), r, c.q)
		var e *backends.Error
		if !errors.As(o.err, &e) || e.Kind != backends.KindInvalid || e.Param != c.param || e.Message == "" {
			t.Errorf("%s: %v, want it refused for %s", name, o.err, c.param)
		}
	}
	if n := len(r.far.Bodies()); n != 0 {
		t.Errorf("%d were sent", n)
	}
}

// TestUpstreamFails holds what becomes of the server's own errors.
func TestUpstreamFails(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*vllmtest.Options)
		kind   backends.Kind
		code   string
		text   string
	}{
		"full":         {func(o *vllmtest.Options) { o.Refuse = refuse(503, `{"error":{"message":"queue is full","code":503}}`) }, backends.KindLimited, "upstream_overloaded", "queue is full"},
		"its own 400":  {func(o *vllmtest.Options) { o.Refuse = refuse(400, `{"error":{"message":"bad tool","code":400}}`) }, backends.KindInvalid, "invalid_value", "bad tool"},
		"400 as event": {func(o *vllmtest.Options) { o.Refuse = refuse(200, `{"error":{"message":"bad qr_cfg","code":400}}`) }, backends.KindInvalid, "invalid_value", "bad qr_cfg"},
		"500":          {func(o *vllmtest.Options) { o.Refuse = refuse(500, `{"error":{"message":"","code":500}}`) }, backends.KindUpstream, "upstream_error", ""},
		"cut":          {func(o *vllmtest.Options) { o.Cut = 3 }, backends.KindLost, "upstream_lost", ""},
	} {
		for _, sampled := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, sampled %t", name, sampled), func(t *testing.T) {
				r := sampling(t, vllmtest.Options{}, nil)
				r.far.Set(c.change)
				q := chat(false, "")
				q.Sampled = sampled
				if e := ask(t.Context(), r, q).failure(t, c.kind, c.code); !strings.Contains(e.Message, c.text) {
					t.Errorf("message %q", e.Message)
				}
				r.idle(t)
			})
		}
	}
}

func refuse(status int, reply string) func([]byte) (int, string) {
	return func([]byte) (int, string) { return status, reply }
}

// TestPartFails holds that one choice that fails ends all.
func TestPartFails(t *testing.T) {
	r := sampling(t, vllmtest.Options{Length: 1000}, nil)
	r.far.Set(func(o *vllmtest.Options) {
		o.Refuse = func(body []byte) (int, string) {
			if strings.Contains(string(body), `qr_seed\":42`) {
				return 500, `{"error":{"message":"no","code":500}}`
			}
			return 0, ""
		}
		o.Hold = func(q *http.Request, step int) {
			if step > 2 {
				<-q.Context().Done()
			}
		}
	})
	q := chat(true, `,"n":3`)
	q.Params.Seed = new(int64(40))
	ask(t.Context(), r, q).fails(t, backends.KindUpstream, "upstream_error")
	r.idle(t)
}
