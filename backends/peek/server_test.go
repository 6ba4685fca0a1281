package peek_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"qr-gateway/backends/openai"
	"qr-gateway/backends/peek"
	"qr-gateway/backends/supply"
	"qr-gateway/sampler/lookahead/lookaheadtest"
)

// vocab is no larger than what the server tells of a row, so that all of the distribution is seen. The last token ends a text; the two before it
// are the halves of a character.
const (
	vocab = 18
	eos   = vocab - 1
	seed  = 7
)

// upstream speaks as much of vLLM's dialect as peek needs. Its model is the synthetic one that the decoder's own tests use.
type upstream struct {
	*httptest.Server
	model *lookaheadtest.Model

	mu      sync.Mutex // guards all below
	calls   int        // of completions
	prompts int        // in them
	widest  int
	spoil   func(w http.ResponseWriter, path string) bool // true: it has answered
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{model: lookaheadtest.NewModel(lookaheadtest.Shape{Vocab: vocab})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"m","object":"model","max_model_len":200}]}`)
	})
	mux.HandleFunc("POST /v1/completions", u.complete)
	mux.HandleFunc("POST /tokenize", u.tokenize)
	mux.HandleFunc("POST /detokenize", u.detokenize)
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		spoil := u.spoil
		u.mu.Unlock()
		if spoil == nil || !spoil(w, r.URL.Path) {
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(u.Close)
	return u
}

// row is the logarithms of the probabilities that follow tokens.
func (u *upstream) row(tokens []int32) []float64 {
	state := lookaheadtest.Start(seed)
	for _, id := range tokens {
		state = lookaheadtest.Next(state, id)
	}
	logits := make([]float32, vocab)
	u.model.Row(state, logits)
	sum, out := 0.0, make([]float64, vocab)
	for _, v := range logits {
		sum += math.Exp(float64(v))
	}
	for i, v := range logits {
		out[i] = float64(v) - math.Log(sum)
	}
	return out
}

func (u *upstream) complete(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Prompt    [][]int32
		MaxTokens int  `json:"max_tokens"`
		Logprobs  int  `json:"logprobs"`
		ByID      bool `json:"return_tokens_as_token_ids"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.MaxTokens != 1 || in.Logprobs != 20 || !in.ByID {
		http.Error(w, `{"error":{"message":"bad request","type":"BadRequestError","code":400}}`, http.StatusBadRequest)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls++
	u.prompts += len(in.Prompt)
	u.widest = max(u.widest, len(in.Prompt))
	choices := make([]any, len(in.Prompt))
	for i, prompt := range in.Prompt {
		top := map[string]float64{}
		for id, lp := range u.row(prompt) {
			top[fmt.Sprintf("token_id:%d", id)] = lp
		}
		choices[len(choices)-1-i] = map[string]any{"index": i, "text": "x", "logprobs": map[string]any{"top_logprobs": []any{top}}}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": choices, "usage": map[string]any{"prompt_tokens_details": map[string]int{"cached_tokens": 2}}})
}

func (u *upstream) tokenize(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Prompt   string
		Messages []struct{ Content string }
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	for _, m := range in.Messages {
		in.Prompt += m.Content
	}
	ids := []int{}
	switch {
	case in.Prompt == "</s>":
		ids = append(ids, eos)
	case strings.HasPrefix(in.Prompt, "<"):
		ids = append(ids, 1, 2) // it has no such token
	default:
		for _, c := range in.Prompt {
			ids = append(ids, int(c)%(vocab-3))
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"tokens": ids, "count": len(ids), "max_model_len": 200})
}

// pieces of the vocabulary, as bytes.
func piece(id int32) string {
	switch id {
	case vocab - 3:
		return "\xc3"
	case vocab - 2:
		return "\xa9"
	case eos:
		return "</s>"
	}
	return string('a' + id)
}

func spell(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(piece(id))
	}
	return strings.ToValidUTF8(b.String(), "\ufffd")
}

func (u *upstream) detokenize(w http.ResponseWriter, r *http.Request) {
	var in struct{ Tokens []int32 }
	_ = json.NewDecoder(r.Body).Decode(&in)
	_ = json.NewEncoder(w).Encode(map[string]string{"prompt": spell(in.Tokens)})
}

func (u *upstream) spoiled(spoil func(w http.ResponseWriter, path string) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.spoil = spoil
}

func config(u *upstream) peek.Config {
	c := peek.DefaultConfig()
	c.Upstream.Model, c.Upstream.URL, c.Vocabulary = "m", u.URL+"/v1", 64
	c.Upstream.Timeouts = openai.DefaultConfig().Timeouts
	return c
}

func start(t *testing.T, c peek.Config) *peek.Backend {
	t.Helper()
	b, err := peek.New(c, peek.Deps{Entropy: supply.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	ctx := t.Context()
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := b.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
