package fake_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
	"qr-gateway/sampler"
)

func build(t testing.TB, cfg fake.Config, deps fake.Deps) *fake.Model {
	t.Helper()
	m, err := fake.New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func text(prompt string) *backends.Request {
	return &backends.Request{ID: "r", Model: "fake", Text: &prompt, Params: sampler.Defaults()}
}

type run struct {
	text   string
	pieces []string
	tokens []int32
	result *backends.Result
}

func generate(ctx context.Context, m *fake.Model, req *backends.Request) (run, error) {
	var out run
	p, err := m.Prepare(ctx, req)
	if err != nil {
		return out, err
	}
	out.result, err = m.Generate(ctx, p, func(e backends.Event) error {
		out.text += e.Content
		out.pieces = append(out.pieces, e.Content)
		out.tokens = append(out.tokens, e.Tokens...)
		return nil
	})
	return out, err
}

func must(t testing.TB, m *fake.Model, req *backends.Request) run {
	t.Helper()
	out, err := generate(context.Background(), m, req)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAnswerDependsOnPromptAndSeedAlone(t *testing.T) {
	one, two := build(t, fake.DefaultConfig(), fake.Deps{}), build(t, fake.DefaultConfig(), fake.Deps{})
	seed := int64(3)
	seeded := text("hello")
	seeded.Params.Seed = &seed
	plain := must(t, one, text("hello")).text
	if again := must(t, two, text("hello")).text; again != plain || plain == "" {
		t.Errorf("got %q, then %q", plain, again)
	}
	if other := must(t, one, seeded).text; other == plain || other != must(t, two, seeded).text {
		t.Errorf("seed 3 gives %q, no seed %q", other, plain)
	}
	if must(t, one, text("hallo")).text == plain {
		t.Error("another prompt gives the same answer")
	}
}

func TestMaxTokens(t *testing.T) {
	m := build(t, fake.DefaultConfig(), fake.Deps{})
	req := text("hello")
	req.MaxTokens = 3
	got := must(t, m, req)
	want := backends.Usage{PromptTokens: 5, CompletionTokens: 3}
	if diff := cmp.Diff(want, got.result.Usage); diff != "" || got.result.Reason != backends.ReasonLength || len(got.tokens) != 3 {
		t.Errorf("got %s, tokens %v: %s", got.result.Reason, got.tokens, diff)
	}
}

// Stop strings end the text before them (or after, where asked for), and no piece ever shows the beginning of one.
func TestStop(t *testing.T) {
	m := build(t, fake.DefaultConfig(), fake.Deps{})
	full := must(t, m, text("hello")).text
	rapid.Check(t, func(t *rapid.T) {
		runes := []rune(full)
		at := rapid.IntRange(0, len(runes)-1).Draw(t, "at")
		stop := string(runes[at:min(len(runes), at+rapid.IntRange(1, 12).Draw(t, "length"))])
		req := text("hello")
		req.Stop, req.IncludeStop = []string{"never said", stop}, rapid.Bool().Draw(t, "include")
		got, err := generate(context.Background(), m, req)
		if err != nil {
			t.Fatal(err)
		}
		want, _, _ := strings.Cut(full, stop)
		if req.IncludeStop {
			want += stop
		}
		if got.text != want || got.result.Reason != backends.ReasonStop {
			t.Fatalf("stop %q: got %q (%s), want %q", stop, got.text, got.result.Reason, want)
		}
		for _, piece := range got.pieces {
			if !utf8.ValidString(piece) {
				t.Fatalf("piece %q is cut within a character", piece)
			}
		}
	})
}

func TestPrepareRefuses(t *testing.T) {
	cfg := fake.DefaultConfig()
	cfg.Context = 10
	m := build(t, cfg, fake.Deps{})
	chat := func(messages string) *backends.Request {
		return &backends.Request{Chat: &backends.Chat{Messages: json.RawMessage(messages)}}
	}
	for name, c := range map[string]struct {
		req  *backends.Request
		kind backends.Kind
		say  string
	}{
		"long":     {text("0123456789"), backends.KindTooLong, "10 tokens"},
		"token":    {&backends.Request{Tokens: []int32{1, 5000}}, backends.KindInvalid, "prompt[1] is token 5000"},
		"negative": {&backends.Request{Tokens: []int32{-1}}, backends.KindInvalid, "token -1"},
		"template": {chat(`[{"role":"assistant","content":"x"}]`), backends.KindInvalid, "template raised"},
	} {
		_, err := m.Prepare(context.Background(), c.req)
		var e *backends.Error
		if !errors.As(err, &e) || e.Kind != c.kind || !strings.Contains(e.Message, c.say) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestPreparedSurvivesJSON(t *testing.T) {
	m := build(t, fake.DefaultConfig(), fake.Deps{})
	p, err := m.Prepare(context.Background(), &backends.Request{Chat: &backends.Chat{Messages: json.RawMessage(`[{"role":"user","content":"x"}]`)}, Params: sampler.Defaults()})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var again backends.Prepared
	if err := json.Unmarshal(raw, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, &again); diff != "" {
		t.Errorf("prepared (-before +after):\n%s", diff)
	}
}

func TestDelayAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := fake.DefaultConfig()
		cfg.Delay = time.Second
		m := build(t, cfg, fake.Deps{})
		req := text("hello")
		req.MaxTokens = 4
		began := time.Now()
		must(t, m, req)
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("4 tokens took %s, want 4 s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if _, err := generate(ctx, m, req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
		if busy := m.Info().Busy; busy != 0 {
			t.Errorf("%d workers are busy after the end", busy)
		}
	})
}

func TestWorkersBoundWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := fake.DefaultConfig()
		cfg.Delay, cfg.Workers = time.Second, 2
		m := build(t, cfg, fake.Deps{})
		req := text("hello")
		req.MaxTokens = 1
		began := time.Now()
		done := make(chan struct{}, 5)
		for range 5 {
			go func() {
				defer func() { done <- struct{}{} }()
				if _, err := generate(t.Context(), m, req); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		if busy := m.Info().Busy; busy != 2 {
			t.Errorf("%d workers are busy, want 2", busy)
		}
		for range 5 {
			<-done
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("5 runs on 2 workers took %s, want 3 s", took)
		}
	})
}

func TestStepFailsTheRun(t *testing.T) {
	m := build(t, fake.DefaultConfig(), fake.Deps{Step: func(_ context.Context, id string, step int) error {
		if id == "r" && step == 2 {
			return fake.Lost()
		}
		return nil
	}})
	got, err := generate(context.Background(), m, text("hello"))
	if !errors.Is(err, backends.ErrLost) || len(got.tokens) != 2 {
		t.Errorf("got %v after %d tokens, want a lost engine after 2", err, len(got.tokens))
	}
}

func TestEmitErrorEndsTheRun(t *testing.T) {
	m := build(t, fake.DefaultConfig(), fake.Deps{})
	p, err := m.Prepare(context.Background(), text("hello"))
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	if _, err := m.Generate(context.Background(), p, func(backends.Event) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for word, cfg := range map[string]fake.Config{
		"id": {Context: 10, Workers: 1}, "context": {Model: "m", Context: 1, Workers: 1}, "workers": {Model: "m", Context: 10}, "delay": {Model: "m", Context: 10, Workers: 1, Delay: -1},
	} {
		if _, err := fake.New(cfg, fake.Deps{}); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: got %v", word, err)
		}
	}
}
