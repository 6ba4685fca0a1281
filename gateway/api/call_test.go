package api_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/gateway/api"
	"qr-gateway/sampler"
)

const hello = `"model":"m","messages":[{"role":"user","content":"hi"}]`

func chat(t *testing.T, body string) (*api.Call, error) {
	t.Helper()
	b, err := api.Parse([]byte(body))
	if err != nil {
		return nil, err
	}
	return b.Chat(sampler.Defaults())
}

func completion(t *testing.T, body string) (*api.Call, error) {
	t.Helper()
	b, err := api.Parse([]byte(body))
	if err != nil {
		return nil, err
	}
	return b.Completion(sampler.Defaults())
}

func mustChat(t *testing.T, body string) *api.Call {
	t.Helper()
	call, err := chat(t, body)
	if err != nil {
		t.Fatalf("decode %s: %v", body, err)
	}
	return call
}

// bad is a body that is refused with a 400 whose message has all of say in it.
type bad struct {
	name, body, param string
	say               []string
}

func badForms() []bad {
	return []bad{
		{"empty", ``, "", []string{"empty"}},
		{"blank", "  \n", "", []string{"not JSON"}},
		{"not JSON", `hello`, "", []string{"not JSON", "byte 1"}},
		{"NaN literal", `{` + hello + `,"temperature":NaN}`, "", []string{"not JSON", "'N'"}},
		{"null", `null`, "", []string{"null"}},
		{"list", `[1]`, "", []string{"list", "object"}},
		{"trailing garbage", `{` + hello + `} x`, "", []string{"not JSON", "after top-level value"}},
		{"two objects", `{` + hello + `}{}`, "", []string{"not JSON"}},
		{"cut off", `{` + hello, "", []string{"not JSON", "unexpected end"}},
		{"invalid UTF-8", "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", "", []string{"UTF-8", "byte 51"}},
		{"invalid UTF-8 in an ignored field", `{` + hello + ",\"user\":\"\xc3\x28\"}", "", []string{"UTF-8"}},
		{"deep", `{` + hello + `,"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "", []string{"64 levels"}},
		{"very deep", strings.Repeat(`{"a":`, 1_000_000), "", []string{"64 levels"}},
		{"model absent", `{"messages":[{"role":"user","content":"hi"}]}`, "model", []string{"model is missing", "/v1/models"}},
		{"model null", `{"model":null}`, "model", []string{"missing"}},
		{"model number", `{"model":3}`, "model", []string{"string", "number"}},
	}
}

func badMessages() []bad {
	msg := func(s string) string { return `{"model":"m","messages":` + s + `}` }
	return []bad{
		{"absent", `{"model":"m"}`, "messages", []string{"empty"}},
		{"empty", msg(`[]`), "messages", []string{"empty"}},
		{"string", msg(`"hi"`), "messages", []string{"list", "string"}},
		{"object", msg(`{}`), "messages", []string{"list", "object"}},
		{"item string", msg(`["hi"]`), "messages[0]", []string{"object", "string"}},
		{"item null", msg(`[null]`), "messages[0]", []string{"object", "null"}},
		{"role absent", msg(`[{"content":"x"}]`), "messages[0].role", []string{"missing", "assistant"}},
		{"role unknown", msg(`[{"role":"wizard","content":"x"}]`), "messages[0].role", []string{"wizard", "developer"}},
		{"role number", msg(`[{"role":1,"content":"x"}]`), "messages[0].role", []string{"string", "number"}},
		{"second message", msg(`[{"role":"user","content":"x"},{"role":"User","content":"x"}]`), "messages[1].role", []string{`"User"`}},
		{"content absent", msg(`[{"role":"user"}]`), "messages[0].content", []string{"missing"}},
		{"content null for user", msg(`[{"role":"user","content":null}]`), "messages[0].content", []string{"missing"}},
		{"content number", msg(`[{"role":"user","content":5}]`), "messages[0].content", []string{"string", "number"}},
		{"content object", msg(`[{"role":"user","content":{"text":"x"}}]`), "messages[0].content", []string{"object"}},
		{"content empty list", msg(`[{"role":"user","content":[]}]`), "messages[0].content", []string{"empty list"}},
		{"part string", msg(`[{"role":"user","content":["x"]}]`), "messages[0].content[0]", []string{"object"}},
		{"part image", msg(`[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:"}}]}]`), "messages[0].content[1].type", []string{"image_url", "text only"}},
		{"part audio", msg(`[{"role":"user","content":[{"type":"input_audio"}]}]`), "messages[0].content[0].type", []string{"input_audio"}},
		{"part text number", msg(`[{"role":"user","content":[{"type":"text","text":1}]}]`), "messages[0].content[0].text", []string{"string"}},
		{"part text absent", msg(`[{"role":"user","content":[{"type":"text"}]}]`), "messages[0].content[0].text", []string{"missing"}},
		{"name number", msg(`[{"role":"user","content":"x","name":1}]`), "messages[0].name", []string{"string"}},
		{"tool without id", msg(`[{"role":"tool","content":"x"}]`), "messages[0].tool_call_id", []string{"missing"}},
		{"tool calls string", msg(`[{"role":"assistant","tool_calls":"x"}]`), "messages[0].tool_calls", []string{"list"}},
	}
}

func badValues() []bad {
	with := func(s string) string { return `{` + hello + `,` + s + `}` }
	return []bad{
		{"max_tokens zero", with(`"max_tokens":0`), "max_tokens", []string{"is 0", "from 1"}},
		{"max_tokens negative", with(`"max_tokens":-5`), "max_tokens", []string{"is -5"}},
		{"max_tokens fraction", with(`"max_tokens":1.5`), "max_tokens", []string{"1.5", "integer"}},
		{"max_tokens string", with(`"max_tokens":"9"`), "max_tokens", []string{"integer", "string"}},
		{"max_tokens huge", with(`"max_tokens":1e30`), "max_tokens", []string{"1e30"}},
		{"max_tokens overflow", with(`"max_tokens":99999999999999999999`), "max_tokens", []string{"9999"}},
		{"max_completion_tokens zero", with(`"max_completion_tokens":0`), "max_completion_tokens", []string{"from 1"}},
		{"temperature negative", with(`"temperature":-1`), "temperature", []string{"temperature is -1"}},
		{"temperature huge", with(`"temperature":1e999`), "temperature", []string{"temperature"}},
		{"temperature string", with(`"temperature":"NaN"`), "temperature", []string{"temperature"}},
		{"temperature list", with(`"temperature":[1]`), "temperature", []string{"a number from 0 to 5"}},
		{"top_p above 1", with(`"top_p":1.5`), "top_p", []string{"top_p is 1.5"}},
		{"seed fraction", with(`"seed":1.5`), "seed", []string{"seed"}},
		{"stop number", with(`"stop":1`), "stop", []string{"string or a list"}},
		{"stop mixed", with(`"stop":["a",1]`), "stop", []string{"string or a list"}},
		{"stop null item", with(`"stop":["a",null]`), "stop", []string{"string or a list"}},
		{"stop long", with(`"stop":"` + strings.Repeat("x", 257) + `"`), "stop", []string{"257 bytes"}},
		{"stop many", with(`"stop":[` + strings.Repeat(`"a",`, 16) + `"a"]`), "stop", []string{"17 strings", "16"}},
		{"stream string", with(`"stream":"yes"`), "stream", []string{"true or false"}},
		{"stream_options without stream", with(`"stream_options":{"include_usage":true}`), "stream_options", []string{"stream: true"}},
		{"stream_options string", with(`"stream":true,"stream_options":"x"`), "stream_options", []string{"object"}},
		{"include_usage string", with(`"stream":true,"stream_options":{"include_usage":"x"}`), "include_usage", []string{"true or false"}},
		{"enable_thinking string", with(`"enable_thinking":"x"`), "enable_thinking", []string{"true or false"}},
		{"enable_thinking twice", with(`"enable_thinking":true,"chat_template_kwargs":{"enable_thinking":false}`), "enable_thinking", []string{"once"}},
		{"chat_template_kwargs list", with(`"chat_template_kwargs":[1]`), "chat_template_kwargs", []string{"object"}},
	}
}

func badUnsupported() []bad {
	with := func(s string) string { return `{` + hello + `,` + s + `}` }
	no := "not supported yet"
	return []bad{
		{"n", with(`"n":2`), "n", []string{"n is " + no}},
		{"n string", with(`"n":"1"`), "n", []string{no}},
		{"logprobs", with(`"logprobs":true`), "logprobs", []string{no}},
		{"top_logprobs", with(`"top_logprobs":3`), "top_logprobs", []string{no}},
		{"logit_bias", with(`"logit_bias":{"a":1}`), "logit_bias", []string{"an object of up to 4096 token ids"}},
		{"presence_penalty", with(`"presence_penalty":2.5`), "presence_penalty", []string{"a number from -2 to 2"}},
		{"frequency_penalty", with(`"frequency_penalty":"1"`), "frequency_penalty", []string{"a number from -2 to 2"}},
		{"tool_choice", with(`"tools":[{"type":"function"}],"tool_choice":"required"`), "tool_choice", []string{no}},
		{"tool_choice object", with(`"tools":[{"type":"function"}],"tool_choice":{"type":"function"}`), "tool_choice", []string{no}},
		{"response_format", with(`"response_format":{"type":"json_object"}`), "response_format", []string{no}},
		{"modalities", with(`"modalities":["audio"]`), "modalities", []string{no}},
	}
}

func badParameters() []bad {
	with := func(s string) string { return `{` + hello + `,` + s + `}` }
	return []bad{
		{"misspelt", with(`"qr_alhpa":0.3`), "qr_alhpa", []string{"qr_alhpa", "qr_alpha"}},
		{"misspelt null", with(`"qr_alhpa":null`), "qr_alhpa", []string{"qr_alpha"}},
		{"upper case", with(`"QR_ALPHA":0.3`), "QR_ALPHA", []string{"unknown", `did you mean "qr_alpha"`}},
		{"bare prefix", with(`"qr_":1`), "qr_", []string{"unknown"}},
		{"alpha range", with(`"qr_alpha":2`), "qr_alpha", []string{"qr_alpha is 2", "-1 to 1"}},
		{"alpha string", with(`"qr_alpha":"x"`), "qr_alpha", []string{"qr_alpha"}},
		{"alpha object", with(`"qr_alpha":{}`), "qr_alpha", []string{"a number from -1 to 1"}},
		{"alpha text", with(`"qr_alpha":"much"`), "qr_alpha", []string{"qr_alpha"}},
		{"alpha huge", with(`"qr_alpha":1e400`), "qr_alpha", []string{"qr_alpha"}},
		{"k zero", with(`"qr_lookahead_k":0`), "qr_lookahead_k", []string{"qr_lookahead_k is 0"}},
		{"k fraction", with(`"qr_lookahead_k":3.5`), "qr_lookahead_k", []string{"3.5"}},
		{"curve", with(`"qr_curve":"bent"`), "qr_curve", []string{"bent", "article"}},
		{"alpha and wave", with(`"qr_alpha":0.3,"qr_wave_period":16`), "qr_alpha", []string{"qr_wave_period", "one of them"}},
		{"unknown in extra_args", with(`"extra_args":{"qr_x":1}`), "qr_x", []string{"unknown"}},
		{"range in extra_body", with(`"extra_body":{"qr_alpha":-3}`), "qr_alpha", []string{"-3"}},
		{"unknown in vllm_xargs", with(`"vllm_xargs":{"qr_curv":"seed"}`), "qr_curv", []string{"qr_curve"}},
		{"extra_args list", with(`"extra_args":[1]`), "extra_args", []string{"object"}},
		{"twice", with(`"qr_alpha":0.3,"extra_args":{"qr_alpha":0.4}`), "qr_alpha", []string{"twice", "0.3", "0.4"}},
		{"twice, one seed apart", with(`"qr_seed":9007199254740993,"extra_body":{"qr_seed":9007199254740992}`), "qr_seed", []string{"twice"}},
		{"seed that is rounded", with(`"qr_seed":9007199254740992.0`), "qr_seed", []string{"whole number"}},
		{"twice in nests", with(`"vllm_xargs":{"qr_curve":"seed"},"extra_body":{"qr_curve":"article"}`), "qr_curve", []string{"twice"}},
	}
}

func badPrompts() []bad {
	prompt := func(s string) string { return `{"model":"m","prompt":` + s + `}` }
	return []bad{
		{"absent", `{"model":"m"}`, "prompt", []string{"missing"}},
		{"empty", prompt(`""`), "prompt", []string{"empty"}},
		{"number", prompt(`5`), "prompt", []string{"number"}},
		{"object", prompt(`{}`), "prompt", []string{"object"}},
		{"empty list", prompt(`[]`), "prompt", []string{"empty"}},
		{"nested empty", prompt(`[[]]`), "prompt", []string{"empty"}},
		{"two strings", prompt(`["a","b"]`), "prompt", []string{"2 prompts"}},
		{"two lists", prompt(`[[1],[2]]`), "prompt", []string{"2 prompts"}},
		{"negative id", prompt(`[1,-1]`), "prompt", []string{"prompt[1] is -1"}},
		{"huge id", prompt(`[4294967296]`), "prompt", []string{"4294967296"}},
		{"fraction id", prompt(`[1.5]`), "prompt", []string{"1.5"}},
		{"mixed", prompt(`[1,"a"]`), "prompt", []string{"string"}},
		{"bool", prompt(`[true]`), "prompt", []string{"boolean"}},
		{"echo", `{"model":"m","prompt":"a","echo":true}`, "echo", []string{"echo is not supported yet"}},
		{"suffix", `{"model":"m","prompt":"a","suffix":"x"}`, "suffix", []string{"not supported"}},
		{"best_of", `{"model":"m","prompt":"a","best_of":2}`, "best_of", []string{"not supported"}},
		{"logprobs", `{"model":"m","prompt":"a","logprobs":0}`, "logprobs", []string{"not supported"}},
	}
}

func TestBadRequest(t *testing.T) {
	groups := []struct {
		name string
		bads []bad
		read func(*testing.T, string) (*api.Call, error)
	}{
		{"form", badForms(), chat},
		{"messages", badMessages(), chat},
		{"values", badValues(), chat},
		{"unsupported", badUnsupported(), chat},
		{"parameters", badParameters(), chat},
		{"prompt", badPrompts(), completion},
	}
	for _, g := range groups {
		for _, b := range g.bads {
			t.Run(g.name+"/"+b.name, func(t *testing.T) {
				_, err := g.read(t, b.body)
				checkBad(t, b, err)
			})
		}
	}
}

func checkBad(t *testing.T, b bad, err error) {
	t.Helper()
	if err == nil {
		t.Fatal("accepted")
	}
	e := api.FromError(err, "r")
	if e.Status != http.StatusBadRequest || e.Type != "invalid_request_error" {
		t.Errorf("got %d %s, want 400 invalid_request_error", e.Status, e.Type)
	}
	if e.Param != b.param {
		t.Errorf("param is %q, want %q", e.Param, b.param)
	}
	for _, s := range b.say {
		if !strings.Contains(e.Message, s) {
			t.Errorf("message %q does not say %q", e.Message, s)
		}
	}
	if len(e.Message) > 400 {
		t.Errorf("message has %d bytes", len(e.Message))
	}
}

func TestMessagesAreWrittenAnew(t *testing.T) {
	call := mustChat(t, `{"model":"m","messages":[
		{"role":"developer","content":"be <brief> & kind","cache_control":{"type":"x"}},
		{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}],"name":"ann"},
		{"role":"assistant","content":null,"reasoning_content":"hm"},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","content":"4","tool_call_id":"c1"},
		{"role":"user","content":""}]}`)
	want := `[{"role":"system","content":"be <brief> & kind"},` +
		`{"role":"user","content":"one\ntwo","name":"ann"},` +
		`{"role":"assistant","content":"","reasoning_content":"hm"},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
		`{"role":"tool","content":"4","tool_call_id":"c1"},` +
		`{"role":"user","content":""}]`
	if diff := cmp.Diff(want, string(call.Request.Chat.Messages)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// What Open WebUI and the stock clients send by default must pass.
func TestJunkIsTolerated(t *testing.T) {
	call := mustChat(t, `{`+hello+`,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto","functions":[],"metadata":{"a":{"b":[1]}},"user":"u","store":false,
		"repeat_penalty":1.1,"mirostat":2,"num_ctx":4096,"keep_alive":"5m","think":true,"format":"json","options":{},
		"n":1,"logprobs":false,"top_logprobs":0,"logit_bias":{},"presence_penalty":0.0,"frequency_penalty":0,
		"response_format":{"type":"text"},"modalities":["text"],"stop":null,"seed":null,"stream":false,"stream_options":null,
		"reasoning_effort":"high","parallel_tool_calls":true,"tool_ids":[],"max_tokens":null,"qr_alpha":null,"extra_body":null,
		"temperature":1,"temperature":0.5}`)
	want := sampler.Defaults()
	want.Temperature = 0.5
	if diff := cmp.Diff(want, call.Request.Params); diff != "" {
		t.Errorf("params (-want +got):\n%s", diff)
	}
	if call.Request.MaxTokens != 0 || call.Request.Stop != nil {
		t.Errorf("got limits %d %v, want none", call.Request.MaxTokens, call.Request.Stop)
	}
}

func TestCallFields(t *testing.T) {
	call := mustChat(t, `{`+hello+`,"stream":true,"stream_options":{"include_usage":true},"max_tokens":9,"max_completion_tokens":16.0,
		"stop":["a","b"],"include_stop_str_in_output":true,"chat_template_kwargs":{"enable_thinking":true,"z":[1],"a":"<"}}`)
	messages := json.RawMessage(`[{"role":"user","content":"hi"}]`)
	want := &api.Call{Stream: true, IncludeUsage: true, Request: &backends.Request{
		Model: "m", MaxTokens: 16, Stop: []string{"a", "b"}, IncludeStop: true, Params: sampler.Defaults(),
		Chat: &backends.Chat{Messages: messages, Thinking: true, Kwargs: json.RawMessage(`{"a":"<","z":[1]}`)},
	}}
	if diff := cmp.Diff(want, call); diff != "" {
		t.Errorf("call (-want +got):\n%s", diff)
	}
	if one := mustChat(t, `{`+hello+`,"stop":"###"}`); !cmp.Equal(one.Request.Stop, []string{"###"}) {
		t.Errorf("stop is %q", one.Request.Stop)
	}
}

func TestPrompts(t *testing.T) {
	text := "hi"
	cases := []struct {
		name, prompt string
		text         *string
		tokens       []int32
	}{
		{"string", `"hi"`, &text, nil},
		{"one string", `["hi"]`, &text, nil},
		{"ids", `[1,2,3.0]`, nil, []int32{1, 2, 3}},
		{"one list", `[[7]]`, nil, []int32{7}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			call, err := completion(t, `{"model":"m","prompt":`+c.prompt+`}`)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.text, call.Request.Text); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.tokens, call.Request.Tokens); diff != "" {
				t.Error(diff)
			}
			if call.Request.MaxTokens != api.CompletionMaxTokens {
				t.Errorf("max_tokens is %d, want %d", call.Request.MaxTokens, api.CompletionMaxTokens)
			}
		})
	}
}

func TestParameterSources(t *testing.T) {
	number := func(f float64) *float64 { return &f }
	seed := int64(9223372036854775807)
	cases := []struct {
		name, fields string
		want         func(*sampler.Params)
	}{
		{"standard", `"temperature":0,"top_p":0.5,"top_k":7,"min_p":0.1,"seed":9223372036854775807`, func(p *sampler.Params) {
			p.Temperature, p.TopP, p.TopK, p.MinP, p.Seed = 0, 0.5, 7, 0.1, &seed
		}},
		{"qr over standard", `"temperature":0.2,"qr_temperature":0.9`, func(p *sampler.Params) { p.Temperature = 0.9 }},
		{"qr null leaves standard", `"temperature":0.2,"qr_temperature":null`, func(p *sampler.Params) { p.Temperature = 0.2 }},
		{"extra_args", `"extra_args":{"qr_alpha":0.5,"other":1}`, func(p *sampler.Params) { p.Alpha = number(0.5) }},
		{"extra_body", `"extra_body":{"qr_curve":"seed"}`, func(p *sampler.Params) { p.Curve = "seed" }},
		{"vllm_xargs", `"vllm_xargs":{"qr_lookahead_k":5}`, func(p *sampler.Params) { p.LookaheadK = 5 }},
		{"same twice", `"qr_alpha":0.3,"extra_args":{"qr_alpha":0.30}`, func(p *sampler.Params) { p.Alpha = number(0.3) }},
		{"null beside a value", `"qr_alpha":null,"extra_args":{"qr_alpha":0.3}`, func(p *sampler.Params) { p.Alpha = number(0.3) }},
		{"alpha with wave off", `"qr_alpha":0.3,"qr_wave_period":0`, func(p *sampler.Params) { p.Alpha = number(0.3) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			want := sampler.Defaults()
			c.want(&want)
			got := mustChat(t, `{`+hello+`,`+c.fields+`}`).Request.Params
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("params (-want +got):\n%s", diff)
			}
		})
	}
}

// A request's alpha is meant, even where the model's defaults hold a wave.
func TestAlphaOverDefaultWave(t *testing.T) {
	defaults := sampler.Defaults()
	defaults.WavePeriod, defaults.WaveAmplitude = 16, 0.5
	b, err := api.Parse([]byte(`{` + hello + `,"qr_alpha":0.3}`))
	if err != nil {
		t.Fatal(err)
	}
	call, err := b.Chat(defaults)
	if err != nil {
		t.Fatal(err)
	}
	if got := call.Request.Params.AlphaAt(4); got != 0.3 {
		t.Errorf("alpha at token 4 is %g, want 0.3", got)
	}
	if defaults.WavePeriod != 16 {
		t.Error("the defaults were changed")
	}
}

// TestAlphaOverPlain holds that a request's alpha is not lost on a model, or a preset, that says plain, but for its own word.
func TestAlphaOverPlain(t *testing.T) {
	defaults := sampler.Defaults()
	defaults.Decoder = sampler.DecoderPlain
	for body, want := range map[string]bool{`"qr_alpha":0.3`: true, `"qr_wave_period":16`: true, `"qr_alpha":0.3,"qr_decoder":"plain"`: false, `"qr_top_k":5`: false} {
		b, err := api.Parse([]byte(`{` + hello + `,` + body + `}`))
		if err != nil {
			t.Fatal(err)
		}
		call, err := b.Chat(defaults)
		if err != nil {
			t.Fatal(err)
		}
		if got := call.Request.Params.UsesLookahead(); got != want {
			t.Errorf("%s: looks ahead is %v, want %v", body, got, want)
		}
	}
}

// TestAlphaAndAWave holds which parts of a wave may stand beside alpha.
func TestAlphaAndAWave(t *testing.T) {
	defaults := sampler.Defaults()
	defaults.WavePeriod = 16
	for body, bad := range map[string]bool{
		`"qr_alpha":0.3,"qr_wave_period":8`: true, `"qr_alpha":0.3,"qr_wave_amplitude":0.5`: true,
		`"qr_alpha":0.3,"qr_wave_period":0,"qr_wave_offset":0.5`: false, `"qr_alpha":0.3,"qr_wave_period":0`: false, `"qr_wave_amplitude":0.5`: false,
	} {
		b, err := api.Parse([]byte(`{` + hello + `,` + body + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = b.Chat(defaults); (err != nil) != bad {
			t.Errorf("%s: error %v, want one: %v", body, err, bad)
		}
	}
}

func TestReadBody(t *testing.T) {
	cases := []struct {
		name            string
		body            string
		declared, limit int64
		status          int
	}{
		{"fits", "12345", 5, 5, 0},
		{"announced too long", "123456", 6, 5, 413},
		{"too long unannounced", "123456", -1, 5, 413},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := strings.NewReader(c.body)
			raw, err := api.ReadBody(r, c.declared, c.limit)
			if c.status == 0 {
				if err != nil || string(raw) != c.body {
					t.Fatalf("got %q, %v", raw, err)
				}
				return
			}
			var e *api.Error
			if !errors.As(err, &e) || e.Status != c.status || !strings.Contains(e.Message, "5 bytes") {
				t.Errorf("got %v", err)
			}
			if c.declared > c.limit && r.Len() != len(c.body) {
				t.Error("an announced body was read")
			}
		})
	}
}
