package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/sampler"
)

func TestReadChunk(t *testing.T) {
	for name, c := range map[string]struct {
		raw  string
		want chunk
	}{
		"role":          {`{"choices":[{"delta":{"role":"assistant","content":""}}],"usage":null}`, chunk{}},
		"text":          {`{"choices":[{"delta":{"content":"a"},"token_ids":[1,2]}]}`, chunk{tokens: []int32{1, 2}, named: true, text: true}},
		"reasoning":     {`{"choices":[{"delta":{"reasoning_content":"a"},"token_ids":[1]}]}`, chunk{tokens: []int32{1}, named: true, text: true}},
		"a tool":        {`{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}`, chunk{text: true}},
		"no tools":      {`{"choices":[{"delta":{"tool_calls":[],"content":null},"token_ids":[7]}]}`, chunk{tokens: []int32{7}, named: true}},
		"the end":       {`{"choices":[{"text":"","finish_reason":"stop","token_ids":[0]}]}`, chunk{tokens: []int32{0}, named: true, ended: true}},
		"not the end":   {`{"choices":[{"text":"x","finish_reason":""}]}`, chunk{text: true}},
		"usage":         {`{"choices":[],"usage":{"prompt_tokens":1}}`, chunk{usage: true}},
		"nothing":       {`{"choices":[]}`, chunk{}},
		"whole":         {`{"choices":[{"message":{"content":"a"},"finish_reason":"length","token_ids":null}],"usage":{}}`, chunk{text: true, ended: true}},
		"two, as whole": {`{"choices":[{"text":"a","token_ids":[1]},{"text":"b","token_ids":[2]}]}`, chunk{tokens: []int32{1, 2}, named: true, text: true}},
	} {
		got, err := readChunk([]byte(c.raw))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got.raw, got.choices = nil, nil
		if diff := cmp.Diff(&c.want, got, cmp.AllowUnexported(chunk{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// FuzzChunk holds that what the client gets of anything that is JSON is JSON with the choices that came, without what it did not ask for.
func FuzzChunk(f *testing.F) {
	for _, seed := range []string{
		`{"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[1]}],"prompt_token_ids":[1],"usage":null}`, `{"choices":[]}`, `{}`, `{"choices":null}`,
		`{"choices":[7]}`, `{"choices":[{}],"choices":[{"token_ids":[]},{"token_ids":"x"}]}`, `{"CHOICES":[{"Token_IDs":[3]}]}`, `{"choices":[{"text":"\u2028"}] , "id":1}`,
	} {
		f.Add([]byte(seed), 3, true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, index int, stream bool) {
		if !json.Valid(raw) || !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
			return // package openai has refused it
		}
		c, err := readChunk(raw)
		if err != nil {
			return
		}
		d := dress{id: []byte(`"x"`), created: []byte(`1`), stream: stream}
		out, err := d.fit(c, index)
		if err != nil {
			return
		}
		var got map[string]json.RawMessage
		var choices []map[string]json.RawMessage
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s became %s: %v", raw, out, err)
		}
		if err := json.Unmarshal(got["choices"], &choices); err != nil || len(choices) != len(c.choices) {
			t.Fatalf("%s became %s: %v", raw, out, err)
		}
		for _, k := range append(choices, map[string]json.RawMessage{"prompt_token_ids": got["prompt_token_ids"]}) {
			if k["token_ids"] != nil || k["prompt_token_ids"] != nil {
				t.Errorf("%s became %s", raw, out)
			}
		}
	})
}

func FuzzGauges(f *testing.F) {
	f.Add("vllm:num_requests_running 2\nvllm:num_requests_waiting{engine=\"0\"} 3\n")
	f.Add("# TYPE vllm:gpu_cache_usage_perc gauge\nvllm:gpu_cache_usage_perc NaN\nvllm:num_requests_running -1")
	f.Add("vllm:num_requests_running{a=\"\\n\"} +Inf 5")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := readGauges(strings.NewReader(text))
		if err == nil && !(g.score(1) >= 0 && g.cache <= 1 && g.score(1) < 1e12) {
			t.Errorf("%q is read as %+v", text, g)
		}
	})
}

func TestGauges(t *testing.T) {
	const two = `# HELP vllm:num_requests_running x
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="1",reason="x"} 100
# TYPE vllm:NAME gauge
vllm:NAME{engine="0"} 0.25
vllm:NAME{engine="1"} 0.75
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{le="0.3"} broken
`
	for _, name := range []string{metricCache, metricOldCache} {
		got, err := readGauges(strings.NewReader(strings.ReplaceAll(two, "vllm:NAME", name)))
		if want := (gauges{waiting: 1, running: 6, cache: 0.5}); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := readGauges(strings.NewReader("python_info 1\n")); err == nil {
		t.Error("metrics of something else were taken")
	}
	if got := (gauges{waiting: 1, running: 6, cache: 0.5}).score(4); got != 2.5 {
		t.Errorf("score %g", got)
	}
}

// TestSettings holds that the sampler reads what is sent as it was.
func TestSettings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := sampler.Defaults()
		for _, err := range []error{
			p.Set("qr_temperature", rapid.Float64Range(0, 2).Draw(t, "temperature")), p.Set("qr_top_k", rapid.IntRange(0, 1000).Draw(t, "k")),
			p.Set("qr_temperature_strategy", rapid.SampledFrom([]string{"fixed", "edt"}).Draw(t, "strategy")), p.Set("qr_diagnostic_mode", rapid.Bool().Draw(t, "records")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if rapid.Bool().Draw(t, "seeded") {
			p.Seed = new(rapid.Int64().Draw(t, "seed"))
		}
		for i, bias := range rapid.SliceOfN(rapid.Float64Range(-100, 100), 0, 5).Draw(t, "bias") {
			p.LogitBias = append(p.LogitBias, sampler.TokenBias{Token: int32(i * 3), Bias: bias})
		}
		raw, err := settings(&p)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := sampler.ParseParams(raw); err != nil || !got.Equal(p) {
			t.Fatalf("%s is read as %+v, %v; want %+v", raw, got, err, p)
		}
	})
}

// script is a trail of choices with times between.
type script struct {
	after []time.Duration
	all   []choice.Choice
}

func (s *script) Next(ctx context.Context) (choice.Choice, error) {
	if len(s.all) == 0 {
		return choice.Choice{}, io.EOF
	}
	wait := time.NewTimer(s.after[0])
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return choice.Choice{}, ctx.Err()
	}
	c := s.all[0]
	s.all, s.after = s.all[1:], s.after[1:]
	return c, nil
}

func (s *script) Finish(context.Context) (*backends.DecodeStats, error) { return nil, nil }

// TestLedger holds how long a choice is waited for, and which one counts.
func TestLedger(t *testing.T) {
	const limit = time.Second
	token := func(step int, id int32) choice.Choice { return choice.Choice{Step: step, Token: id} }
	for name, c := range map[string]struct {
		script script
		step   int
		want   entry
		took   time.Duration
	}{
		"there":             {script{[]time.Duration{0}, []choice.Choice{token(0, 5)}}, 0, entry{token: 5, times: 1}, 0},
		"soon":              {script{[]time.Duration{limit / 2}, []choice.Choice{token(0, 5)}}, 0, entry{token: 5, times: 1}, limit / 2},
		"too late":          {script{[]time.Duration{2 * limit, 9 * limit}, []choice.Choice{token(0, 5), token(1, 5)}}, 0, entry{}, limit},
		"never":             {script{[]time.Duration{limit / 4}, []choice.Choice{token(1, 5)}}, 0, entry{}, limit / 4},
		"over":              {script{}, 0, entry{}, 0},
		"out of all bounds": {script{[]time.Duration{0, 0}, []choice.Choice{token(-1, 5), token(mostSteps, 5)}}, 3, entry{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				l, began := newLedger(), time.Now()
				go l.follow(ctx, &c.script, func(*choice.Choice) { t.Error("it was stopped") })
				got := l.at(ctx, c.step, limit)
				if took := time.Since(began); got != c.want || took != c.took {
					t.Errorf("%+v after %s, want %+v after %s", got, took, c.want, c.took)
				}
			})
		})
	}
}
