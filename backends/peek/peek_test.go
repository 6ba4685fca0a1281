package peek_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/backends/backendtest"
	"qr-gateway/backends/peek"
	"qr-gateway/sampler"
	"qr-gateway/sampler/lookahead"
	"qr-gateway/sampler/lookahead/lookaheadtest"
)

var prompt = []int32{3, 1, 4, 1, 5}

func ahead(alpha float64, choice string) sampler.Params {
	p := sampler.Defaults()
	s := int64(11)
	p.Alpha, p.LookaheadChoice, p.Seed = &alpha, choice, &s
	return p
}

func tokens(id string, p sampler.Params, most int) *backends.Request {
	return &backends.Request{ID: id, Model: "m", Tokens: prompt, Params: p, MaxTokens: most}
}

type answer struct {
	text   string
	tokens []int32
	result *backends.Result
	err    error
}

func generate(ctx context.Context, b *peek.Backend, r *backends.Request) (a answer) {
	p, err := b.Prepare(ctx, r)
	if err != nil {
		a.err = err
		return a
	}
	a.result, a.err = b.Generate(ctx, p, func(e backends.Event) error {
		if !utf8.ValidString(e.Content) {
			return fmt.Errorf("piece %q is cut within a character", e.Content)
		}
		a.text += e.Content
		a.tokens = append(a.tokens, e.Tokens...)
		return nil
	})
	return a
}

// direct decodes with the model itself at hand: every row whole, nothing asked of a server.
func direct(t *testing.T, p sampler.Params, most int) (tokens []int32, peeks int) {
	t.Helper()
	p.LookaheadK, p.LookaheadN = 20, 20
	eval := lookaheadtest.New(lookaheadtest.NewModel(lookaheadtest.Shape{Vocab: vocab}), seed, 8)
	for _, id := range prompt {
		if _, err := eval.Commit(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	d, err := lookahead.New(vocab, lookahead.Config{})
	if err != nil {
		t.Fatal(err)
	}
	st := lookahead.Step{Row: eval.Row(), Params: &p, Noise: sampler.NewSeeded(*p.Seed), Eval: eval, EOG: sampler.NewMask(eos)}
	for st.Index < most {
		out, err := d.Next(t.Context(), &st)
		if err != nil {
			t.Fatal(err)
		}
		if peeks += out.Peeks; out.End {
			break
		}
		tokens = append(tokens, out.Token)
		st.Row = out.Row
		st.Index++
	}
	return tokens, peeks
}

// The answer over HTTP is the one of the decoder that has the model at hand, token for token, and so is what it took.
func TestSameAsWithTheModelAtHand(t *testing.T) {
	u := newUpstream(t)
	b := start(t, config(u))
	for _, choice := range []string{sampler.ChoiceSample, sampler.ChoiceArgmax} {
		for _, alpha := range []float64{0, 0.3, 0.7} {
			p := ahead(alpha, choice)
			want, peeks := direct(t, p, 40)
			got := generate(t.Context(), b, tokens("r", p, 40))
			if got.err != nil {
				t.Fatal(got.err)
			}
			if diff := cmp.Diff(want, got.tokens); diff != "" || len(want) < 3 {
				t.Errorf("%s, alpha %v: tokens (-direct +asked):\n%s", choice, alpha, diff)
			}
			s := got.result.Stats
			if s.Peeks != peeks || s.Decoder != "lookahead" || s.Choice != choice || s.AlphaMax == nil || *s.AlphaMax != alpha {
				t.Errorf("%s, alpha %v: %d peeks, want %d: %+v", choice, alpha, s.Peeks, peeks, s)
			}
			if got.text != spell(got.tokens) {
				t.Errorf("text %q, tokens spell %q", got.text, spell(got.tokens))
			}
			if got.result.Usage != (backends.Usage{PromptTokens: 5, CompletionTokens: len(want), CachedTokens: 2}) {
				t.Errorf("usage %+v", got.result.Usage)
			}
		}
	}
}

// A round is one call, whatever it asks for, and the winner of it is not asked for again.
func TestCallsPerToken(t *testing.T) {
	u := newUpstream(t)
	c := config(u)
	b := start(t, c)
	got := generate(t.Context(), b, tokens("r", ahead(0.3, sampler.ChoiceArgmax), 60))
	if got.err != nil {
		t.Fatal(got.err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	s := got.result.Stats
	if u.widest < 2 || u.widest > c.Group {
		t.Errorf("a call asks for %d at most, the group is %d", u.widest, c.Group)
	}
	// One call for the prompt, and for each token either its peeks, of which one is kept, or the token itself.
	if most := 1 + s.Peeks + s.Tokens; u.prompts > most {
		t.Errorf("%d rows were asked for: %d peeks and %d tokens take %d at most", u.prompts, s.Peeks, s.Tokens, most)
	}
	if u.calls >= u.prompts {
		t.Errorf("%d calls for %d rows: nothing was asked for together", u.calls, u.prompts)
	}
	t.Logf("%d tokens, %d peeks, %d calls", s.Tokens, s.Peeks, u.calls)
}

// Plain requests are drawn from the rows alone.
func TestPlain(t *testing.T) {
	u := newUpstream(t)
	b := start(t, config(u))
	p := sampler.Defaults()
	p.Temperature = 0
	got := generate(t.Context(), b, tokens("r", p, 12))
	if got.err != nil {
		t.Fatal(got.err)
	}
	text := slices.Clone(prompt)
	for i, id := range got.tokens {
		row := u.row(text)
		if best := slices.Index(row, slices.Max(row)); int32(best) != id {
			t.Fatalf("token %d is %d, the most probable %d", i, id, best)
		}
		text = append(text, id)
	}
	if got.result.Stats.Decoder != "plain" || got.result.Stats.Peeks != 0 || len(got.tokens) == 0 {
		t.Errorf("%+v", got.result.Stats)
	}
}

func TestChatAndStops(t *testing.T) {
	u := newUpstream(t)
	b := start(t, config(u))
	r := &backends.Request{
		ID: "r", Model: "m", Params: ahead(0.3, sampler.ChoiceArgmax), MaxTokens: 100,
		Chat: &backends.Chat{Messages: json.RawMessage(`[{"role":"user","content":"hello"}]`), Kwargs: json.RawMessage(`{"x":1}`)},
	}
	whole := generate(t.Context(), b, r)
	if whole.err != nil || whole.result.Usage.PromptTokens != 5 || len(whole.text) < 4 {
		t.Fatalf("%+v", whole)
	}
	r.Stop = []string{whole.text[2:4]}
	cut := generate(t.Context(), b, r)
	want, _, _ := strings.Cut(whole.text, r.Stop[0])
	if cut.err != nil || cut.text != want || cut.result.Reason != backends.ReasonStop {
		t.Errorf("%q (%v), want %q", cut.text, cut.err, want)
	}
}

// A prompt may end within a character; the answer then has the whole of it.
func TestGoesOnWithinACharacter(t *testing.T) {
	u := newUpstream(t)
	b := start(t, config(u))
	r := tokens("r", ahead(0.3, sampler.ChoiceArgmax), 1)
	r.Tokens = []int32{3, 1, vocab - 3}
	r.Params.LogitBias = []sampler.TokenBias{{Token: vocab - 2, Bias: 100}}
	if got := generate(t.Context(), b, r); got.err != nil || got.text != "é" {
		t.Errorf("%q (%v), want é", got.text, got.err)
	}
}

func TestSuite(t *testing.T) {
	u := newUpstream(t)
	c := config(u)
	c.EndTokens = nil
	b := start(t, c)
	backendtest.Run(t, backendtest.Subject{
		Backend: b,
		Request: func(id string) *backends.Request { return tokens(id, ahead(0.3, sampler.ChoiceSample), 12) },
		TooLong: func(id string) *backends.Request {
			s := strings.Repeat("a", 300)
			r := tokens(id, ahead(0, "sample"), 1)
			r.Tokens, r.Text = nil, &s
			return r
		},
		Wrong: func(id string) *backends.Request {
			r := tokens(id, ahead(0, "sample"), 1)
			r.Tokens = []int32{1, 9999}
			return r
		},
	})
}

func TestRefusals(t *testing.T) {
	u := newUpstream(t)
	b := start(t, config(u))
	p := ahead(0.3, sampler.ChoiceSample)
	p.Strategy = "edt"
	var e *backends.Error
	if got := generate(t.Context(), b, tokens("r", p, 4)); !errors.As(got.err, &e) || e.Kind != backends.KindInvalid || e.Param != "qr_temperature_strategy" {
		t.Errorf("strategy: %v", got.err)
	}
	for name, c := range map[string]struct {
		body string
		say  string
	}{
		"no ids":     {`{"choices":[{"index":0,"logprobs":{"top_logprobs":[{" the":-0.1}]}}]}`, "return_tokens_as_token_ids"},
		"no row":     {`{"choices":[{"index":0}]}`, "no logprobs"},
		"none":       {`{"choices":[]}`, "0 choices of 1"},
		"other":      {`{"choices":[{"index":4,"logprobs":{"top_logprobs":[{"token_id:1":-1}]}}]}`, "choice 4"},
		"beyond":     {`{"choices":[{"index":0,"logprobs":{"top_logprobs":[{"token_id:64":-1}]}}]}`, "vocabulary"},
		"positive":   {`{"choices":[{"index":0,"logprobs":{"top_logprobs":[{"token_id:1":1}]}}]}`, "no logarithm"},
		"impossible": {`{"choices":[{"index":0,"logprobs":{"top_logprobs":[{"token_id:1":-9999}]}}]}`, "no token that may follow"},
		"no JSON":    {`<html>`, "no answer"},
	} {
		u.spoiled(func(w http.ResponseWriter, path string) bool {
			if path == "/v1/completions" {
				fmt.Fprint(w, c.body)
			}
			return path == "/v1/completions"
		})
		got := generate(t.Context(), b, tokens("r", ahead(0.3, sampler.ChoiceSample), 4))
		if !errors.As(got.err, &e) || e.Kind != backends.KindUpstream || !strings.Contains(e.Message, c.say) || strings.Contains(e.Message, u.URL) {
			t.Errorf("%s: %v", name, got.err)
		}
	}
	u.spoiled(nil)
	if got := generate(t.Context(), b, tokens("r", ahead(0.3, sampler.ChoiceSample), 4)); got.err != nil {
		t.Errorf("after all that: %v", got.err)
	}
}

func TestConfig(t *testing.T) {
	c := peek.DefaultConfig()
	c.Logprobs, c.Group, c.Vocabulary = 0, 0, 0
	err := c.Validate()
	for _, field := range []string{"url", "id", "logprobs", "group", "vocabulary"} {
		if err == nil || !strings.Contains(err.Error(), field+" is") {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
}

// Whatever a server sends, the answer is text or an error about the server.
func FuzzAnswers(f *testing.F) {
	for _, body := range []string{
		`{"choices":[{"index":0,"logprobs":{"top_logprobs":[{"token_id:1":-0.1,"token_id:17":-3}]}}]}`, `{"choices":null}`, `[]`, `{"tokens":[1,2]}`, `{"prompt":"\ud83d"}`,
		`{"choices":[{"index":0,"logprobs":{"top_logprobs":[{"token_id:-1":null}]}}],"usage":{"prompt_tokens_details":{"cached_tokens":-5}}}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		u := newUpstream(t)
		b := start(t, config(u))
		u.spoiled(func(w http.ResponseWriter, path string) bool {
			if path == "/v1/models" {
				return false
			}
			fmt.Fprint(w, body)
			return true
		})
		got := generate(t.Context(), b, tokens("r", ahead(0.3, sampler.ChoiceSample), 3))
		var e *backends.Error
		if got.err != nil && !errors.As(got.err, &e) {
			t.Errorf("%q: %v", body, got.err)
		}
	})
}
