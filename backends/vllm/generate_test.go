package vllm_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/backends/backendtest"
	"qr-gateway/backends/vllm"
	"qr-gateway/backends/vllm/vllmtest"
	"qr-gateway/sampler"
)

// TestIsABackend holds the backend to what every one owes, for plain requests and for sampled ones.
func TestIsABackend(t *testing.T) {
	for _, sampled := range []bool{false, true} {
		t.Run(fmt.Sprint("sampled ", sampled), func(t *testing.T) {
			r := sampling(t, vllmtest.Options{Length: 8}, nil)
			request := func(string) *backends.Request {
				q := chat(true, "")
				q.Sampled = sampled
				return q
			}
			backendtest.Run(t, backendtest.Subject{Backend: r, Request: request})
			r.idle(t)
		})
	}
}

// TestPlain holds that a request that is not sampled goes on and comes back as it is, but for the model.
func TestPlain(t *testing.T) {
	r := sampling(t, vllmtest.Options{Length: 3}, nil)
	q := chat(true, `,"return_token_ids":true,"stream_options":{"include_usage":true}`)
	q.Sampled = false
	o := ask(t.Context(), r, q).well(t)
	if got, want := r.far.Bodies()[0], strings.Replace(string(q.Raw), `"here"`, `"there"`, 1); got != want {
		t.Errorf("the server got %s\nwant %s", got, want)
	}
	want := []string{
		`{"id":"cmpl-far","object":"chat.completion.chunk","created":5,"model":"here","system_fingerprint":"vllm-0.32.0","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[7,8,9]}`,
		`{"id":"cmpl-far","object":"chat.completion.chunk","created":5,"model":"here","system_fingerprint":"vllm-0.32.0","choices":[{"index":0,"delta":{"content":" t1"},"logprobs":null,"finish_reason":null,"token_ids":[1]}]}`,
	}
	if diff := cmp.Diff(want, o.raw[:2]); diff != "" || len(o.raw) != 5 || o.res.Last != nil {
		t.Errorf("%d chunks, last %s (-want +got):\n%s", len(o.raw), o.res.Last, diff)
	}
	if o.res.Usage != (backends.Usage{PromptTokens: 3, CompletionTokens: 3, CachedTokens: 1}) || o.res.Stats.Decoder != "" {
		t.Errorf("result %+v", o.res)
	}
}

// TestSent holds what a sampled request becomes.
func TestSent(t *testing.T) {
	p := sampler.Defaults()
	for key, v := range map[string]any{"qr_temperature": 0.7, "qr_top_k": 5, "qr_top_p": 0.9, "qr_seed": 7, "qr_frequency_penalty": 0.5, "qr_min_p": 0.01} {
		if err := p.Set(key, v); err != nil {
			t.Fatal(err)
		}
	}
	p.LogitBias = []sampler.TokenBias{{Token: 3, Bias: -1.5}}
	for fail, own := range map[vllm.Fail]string{
		vllm.FailStop:   `"temperature":0,"top_p":1,"top_k":0,"min_p":0`,
		vllm.FailNative: `"temperature":0.7,"top_p":0.9,"top_k":5,"min_p":0.01`,
	} {
		t.Run(string(fail), func(t *testing.T) {
			r := sampling(t, vllmtest.Options{}, func(c *vllm.Config) { c.Fail = fail })
			q := chat(true, `,"top_k":5,"seed":7,"logit_bias":{"3":-1.5},"presence_penalty":1,"n":1,"best_of":1,"stop":["x"],"stream_options":{"continuous_usage_stats":true},"vllm_xargs":{"other":[1,2]}`)
			q.Params = p
			ask(t.Context(), r, q).well(t)
			var got, want map[string]any
			got = decode[map[string]any](t, r.far.Bodies()[0])
			xargs, _ := got["vllm_xargs"].(map[string]any)
			rid, _ := xargs["qr_rid"].(string)
			if !regexp.MustCompile(`^qr-[a-z0-9]{20,61}$`).MatchString(rid) || !slices.Contains(r.side.Ended(), rid) {
				t.Errorf("rid %q; the sidecar has ended %q", rid, r.side.Ended())
			}
			want = decode[map[string]any](t, `{"model":"there","messages":[{"role":"user","content":"<hi>"}],"big":12345678901234567890,"stream":true,"stop":["x"],`+own+`,
				"presence_penalty":0,"frequency_penalty":0,"repetition_penalty":1,"n":1,"use_beam_search":false,"watermarking":false,"return_token_ids":true,
				"stream_options":{"continuous_usage_stats":true,"include_usage":true},"vllm_xargs":{"other":[1,2],"qr_v":1,"qr_fail":"`+string(fail)+`"}}`)
			cfg, err := sampler.ParseParams([]byte(xargs["qr_cfg"].(string)))
			if err != nil || !cfg.Equal(p) {
				t.Errorf("the plugin gets the parameters %s: %v", xargs["qr_cfg"], err)
			}
			delete(xargs, "qr_rid")
			delete(xargs, "qr_cfg")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the server got (-want +got):\n%s", diff)
			}
			if !strings.Contains(r.far.Bodies()[0], `"big":12345678901234567890`) {
				t.Error("a number was rounded")
			}
		})
	}
}

// TestSentNothingRefused holds that a server that draws by itself is told what it takes in the place of a top-p of 0.
func TestSentNothingRefused(t *testing.T) {
	for _, more := range []map[string]any{{"qr_top_p": 0.0}, {"qr_top_p": 0.0, "qr_top_k": 40}} {
		r := sampling(t, vllmtest.Options{}, lenient)
		q := chat(false, "")
		if errs := q.Params.Lay(more); len(errs) > 0 {
			t.Fatal(errs)
		}
		ask(t.Context(), r, q).well(t)
		got := decode[struct {
			TopP  float64 `json:"top_p"`
			TopK  int     `json:"top_k"`
			Xargs struct {
				Cfg string `json:"qr_cfg"`
			} `json:"vllm_xargs"`
		}](t, r.far.Bodies()[0])
		if got.TopP != 1 || got.TopK != 1 || !strings.Contains(got.Xargs.Cfg, `"qr_top_p":0`) {
			t.Errorf("%v goes on as %+v", more, got)
		}
	}
}

// chunkOf is what is read of what the client gets.
type chunkOf struct {
	ID      string
	Model   string
	Choices []struct {
		Index   int
		Reason  *string `json:"finish_reason"`
		Text    string
		Delta   struct{ Content string }
		Message struct{ Content string }
		IDs     []int32 `json:"token_ids"`
		Prompt  []int32 `json:"prompt_token_ids"`
	}
	Usage  map[string]any
	Prompt []int32 `json:"prompt_token_ids"`
}

// TestSampledStream holds what the client of a sampled stream gets: nothing of what it did not ask for, and the end apart.
func TestSampledStream(t *testing.T) {
	for name, c := range map[string]struct {
		more       string
		ids, usage bool
		group      int
	}{
		"plain":           {},
		"ids":             {more: `,"return_token_ids":true`, ids: true},
		"usage":           {more: `,"stream_options":{"include_usage":true}`, usage: true},
		"several a chunk": {group: 4},
	} {
		t.Run(name, func(t *testing.T) {
			r := sampling(t, vllmtest.Options{Group: c.group}, nil)
			o := ask(t.Context(), r, chat(true, c.more)).well(t)
			var tokens []int32
			reason := ""
			all := append(slices.Clone(o.raw), string(o.res.Last))
			for i, raw := range all {
				k := decode[chunkOf](t, raw)
				if k.ID != "chatcmpl-1" || k.Model != "here" || (k.Prompt != nil) != (c.ids && i == 0) || k.Usage != nil && (!c.usage || i < len(all)-1) {
					t.Errorf("chunk %d is %s", i, raw)
				}
				if strings.Contains(raw, "token_ids") && !c.ids || strings.Contains(raw, `"usage"`) && !c.usage {
					t.Errorf("chunk %d has what was not asked for: %s", i, raw)
				}
				for _, choice := range k.Choices {
					tokens = append(tokens, choice.IDs...)
					if choice.Reason != nil {
						reason = *choice.Reason
					}
				}
			}
			if reason != "stop" || o.res.Reason != "stop" || c.ids && len(tokens) != 6 || o.started != 1 {
				t.Errorf("reason %q, tokens %v, started %d times", reason, tokens, o.started)
			}
			if last := decode[chunkOf](t, all[len(all)-1]); c.usage && (len(last.Choices) != 0 || last.Usage["completion_tokens"] != 6.0) || !c.usage && len(last.Choices) != 1 {
				t.Errorf("the last is %s", all[len(all)-1])
			}
			want := backends.DecodeStats{
				Decoder: "plain", Strategy: "fixed", EntropySource: "system", Policy: "strict", Amplifier: "zscore_mean", USource: "zscore_mean",
				Tokens: 6, EntropyBytes: 96, PromptMS: o.res.Stats.PromptMS, DecodeMS: o.res.Stats.DecodeMS,
			}
			if diff := cmp.Diff(want, o.res.Stats); diff != "" || o.res.Usage.CompletionTokens != 6 || want.PromptMS <= 0 {
				t.Errorf("usage %+v, stats (-want +got):\n%s", o.res.Usage, diff)
			}
			r.idle(t)
		})
	}
}

func TestSampledWhole(t *testing.T) {
	r := sampling(t, vllmtest.Options{}, nil)
	for _, q := range []*backends.Request{chat(false, ""), text(`,"prompt":"a"`), text(`,"prompt":[5,6]`)} {
		o := ask(t.Context(), r, q).well(t)
		k := decode[chunkOf](t, string(o.res.Last))
		if len(o.raw) != 0 || len(k.Choices) != 1 || k.ID != "chatcmpl-1" || k.Usage["total_tokens"] != 9.0 || strings.Contains(string(o.res.Last), "token_ids") {
			t.Errorf("events %q, reply %s", o.raw, o.res.Last)
		}
		if o.res.Usage != (backends.Usage{PromptTokens: 3, CompletionTokens: 6, CachedTokens: 1}) || o.res.Stats.Tokens != 6 || o.res.Stats.Native+o.res.Stats.Mismatched != 0 {
			t.Errorf("result %+v", o.res)
		}
	}
}

// TestSeveral holds what becomes of several choices and prompts: a request each, with its own name and seed, in one answer.
func TestSeveral(t *testing.T) {
	seeded := func(q *backends.Request) *backends.Request {
		q.Params.Seed = new(int64(40))
		return q
	}
	for name, c := range map[string]struct {
		q       *backends.Request
		seeds   []float64
		prompts []string
		usage   backends.Usage
	}{
		"stream":         {seeded(chat(true, `,"n":3`)), []float64{40, 41, 42}, []string{"", "", ""}, backends.Usage{PromptTokens: 3, CompletionTokens: 18, CachedTokens: 1}},
		"stream, usage":  {seeded(chat(true, `,"n":2,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`)), []float64{40, 41}, []string{"", ""}, backends.Usage{PromptTokens: 3, CompletionTokens: 12, CachedTokens: 1}},
		"whole":          {seeded(chat(false, `,"n":3`)), []float64{40, 41, 42}, []string{"", "", ""}, backends.Usage{PromptTokens: 3, CompletionTokens: 18, CachedTokens: 1}},
		"prompts":        {seeded(text(`,"n":2,"prompt":["a","b"]`)), []float64{40, 40, 41, 41}, []string{`"a"`, `"a"`, `"b"`, `"b"`}, backends.Usage{PromptTokens: 6, CompletionTokens: 24, CachedTokens: 2}},
		"token prompts":  {seeded(text(`,"prompt":[[1,2],[3]]`)), []float64{40, 40}, []string{`[1,2]`, `[3]`}, backends.Usage{PromptTokens: 6, CompletionTokens: 12, CachedTokens: 2}},
		"without a seed": {text(`,"n":2,"prompt":["a"]`), []float64{-1, -1}, []string{`"a"`, `"a"`}, backends.Usage{PromptTokens: 3, CompletionTokens: 12, CachedTokens: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := sampling(t, vllmtest.Options{}, nil)
			probes := len(r.side.Ended())
			o := ask(t.Context(), r, c.q).well(t)
			var seeds []float64
			var prompts, rids []string
			for _, body := range r.far.Bodies() {
				b := decode[struct {
					Prompt json.RawMessage
					N      int
					Xargs  struct {
						RID string `json:"qr_rid"`
						Cfg string `json:"qr_cfg"`
					} `json:"vllm_xargs"`
				}](t, body)
				cfg := decode[map[string]any](t, b.Xargs.Cfg)
				seed, ok := cfg["qr_seed"].(float64)
				if !ok {
					seed = -1
				}
				seeds, prompts, rids = append(seeds, seed), append(prompts, string(b.Prompt)), append(rids, b.Xargs.RID)
				if b.N != 1 || strings.Contains(body, "continuous") {
					t.Errorf("the server got %s", body)
				}
			}
			slices.Sort(seeds)
			slices.Sort(prompts)
			slices.Sort(rids)
			if diff := cmp.Diff(c.seeds, seeds) + cmp.Diff(c.prompts, prompts); diff != "" || len(slices.Compact(rids)) != len(c.seeds) || len(r.side.Ended())-probes != len(c.seeds) {
				t.Errorf("requests %q (-want +got):\n%s", rids, diff)
			}
			if diff := cmp.Diff(c.usage, o.res.Usage); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
			merged(t, o, len(c.seeds))
			r.idle(t)
		})
	}
}

// merged asserts that an answer has all its choices, each from its first token to its end, and one end.
func merged(t *testing.T, o outcome, n int) {
	t.Helper()
	texts, ends := make([]string, n), make([]int, n)
	all := append(slices.Clone(o.raw), string(o.res.Last))
	for i, raw := range all {
		k := decode[chunkOf](t, raw)
		if k.ID != "chatcmpl-1" || k.Usage != nil && i < len(all)-1 {
			t.Errorf("chunk %d is %s", i, raw)
		}
		for _, c := range k.Choices {
			if ends[c.Index] > 0 {
				t.Errorf("choice %d goes on after its end: %s", c.Index, raw)
			}
			texts[c.Index] += c.Text + c.Delta.Content + c.Message.Content
			if c.Reason != nil {
				ends[c.Index]++
			}
		}
		if u := k.Usage; u != nil && (u["completion_tokens"] != float64(o.res.Usage.CompletionTokens) || u["prompt_tokens"] != float64(o.res.Usage.PromptTokens)) {
			t.Errorf("usage %v, want %+v", u, o.res.Usage)
		}
	}
	for i := range n {
		if ends[i] != 1 || strings.Count(texts[i], " t") != 5 || slices.Index(texts, texts[i]) != i {
			t.Errorf("choice %d ends %d times and says %q", i, ends[i], texts[i])
		}
	}
	s := o.res.Stats
	if len(s.Choices) != n || s.Tokens != 6*n || s.EntropyBytes != int64(96*n) || s.Choices[n-1].Tokens != 6 || s.Decoder != "plain" {
		t.Errorf("stats %+v", s)
	}
}
