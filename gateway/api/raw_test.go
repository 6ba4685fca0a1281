package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/gateway/api"
)

// exact reads JSON with its numbers as they are written.
func exact(t *testing.T, raw []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("decode %.300s: %v", raw, err)
	}
	return v
}

func pass(t *testing.T, body string, to api.Passing) (*api.Call, error) {
	t.Helper()
	b, err := api.Parse([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return b.Raw(to)
}

// TestRawKeeps has what a decoder would round, lose or refuse, and what the other way to ask would.
func TestRawKeeps(t *testing.T) {
	for name, c := range map[string]struct{ path, body string }{
		"a chat": {api.ChatPath, `{"model":"m","stream":true,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}],
			"tools":[{"type":"function","function":{"name":"f","parameters":{"x":12345678901234567890,"y":0.1000000000000000055,"z":1e400}}}],"n":3,
			"logprobs":true,"response_format":{"type":"json_schema","json_schema":{"a":"<&>\u2028é"}},"mirostat":-0.0,"extra_body":{"a":1},"nothing":null}`},
		"a text":             {api.CompletionPath, `{"model":"m","prompt":["a",[1,2]],"suffix":"b","echo":true,"best_of":2}`},
		"roles of their own": {api.ChatPath, `{"model":"m","messages":[{"role":"ipython","content":null}],"stream":false}`},
	} {
		t.Run(name, func(t *testing.T) {
			call, err := pass(t, c.body, api.Passing{Path: c.path, Model: "m"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(exact(t, []byte(c.body)), exact(t, call.Request.Raw)); diff != "" {
				t.Errorf("what goes on (-client's +ours):\n%s", diff)
			}
			if call.Stream != strings.Contains(c.body, `"stream":true`) || call.Request.Stream != call.Stream || call.Request.Path != c.path {
				t.Errorf("call is %+v of %s", call, call.Request.Path)
			}
		})
	}
}

// TestRawOurKeys holds what becomes of keys that begin with qr_.
func TestRawOurKeys(t *testing.T) {
	const head = `{"model":"alias:task","messages":[{}],`
	for name, c := range map[string]struct {
		keys   string
		params bool
		task   string
		want   string // "" is a refusal
		refuse string // the key that it names
	}{
		"where from":             {keys: `"qr_client":"open-webui","qr_task":"title"`, want: `"x":0`},
		"where from, nested":     {keys: `"extra_args":{"qr_client":"c"},"extra_body":{"qr_task":"t","y":1}`, want: `"x":0,"extra_body":{"y":1}`},
		"null":                   {keys: `"qr_alpha":null,"vllm_xargs":{"qr_top_k":null,"z":null}`, want: `"x":0,"vllm_xargs":{"z":null}`},
		"a nest of another form": {keys: `"extra_body":"text"`, want: `"x":0,"extra_body":"text"`},
		"a parameter":            {keys: `"qr_alpha":0.5`, refuse: "qr_alpha"},
		"in capitals":            {keys: `"QR_Top_K":5`, refuse: "QR_Top_K"},
		"unknown":                {keys: `"qr_nonsense":0`, refuse: "qr_nonsense"},
		"nested":                 {keys: `"extra_body":{"qr_top_k":5}`, refuse: "qr_top_k"},
		"passed":                 {keys: `"qr_alpha":0.5,"qr_client":"c","extra_body":{"qr_top_k":5}`, params: true, want: `"x":0,"qr_alpha":0.5,"qr_client":"c","extra_body":{"qr_top_k":5}`},
		"passed with the task":   {keys: `"qr_client":"c"`, params: true, task: "alias", want: `"x":0,"qr_client":"c","qr_task":"alias"`},
	} {
		t.Run(name, func(t *testing.T) {
			call, err := pass(t, head+c.keys+`,"x":0}`, api.Passing{Path: api.ChatPath, Model: "m", Task: c.task, Params: c.params})
			if c.want == "" {
				var e *api.Error
				if !errors.As(err, &e) || e.Status != 400 || e.Param != c.refuse || !strings.Contains(e.Message, "leave it out") {
					t.Errorf("Raw = %+v, %v; want a 400 about %s", call, err, c.refuse)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := exact(t, []byte(`{"model":"m","messages":[{}],`+c.want+`}`))
			if diff := cmp.Diff(want, exact(t, call.Request.Raw)); diff != "" {
				t.Errorf("what goes on (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRawRefuses(t *testing.T) {
	for name, c := range map[string]struct{ path, body, param string }{
		"no messages":       {api.ChatPath, `{"model":"m"}`, "messages"},
		"empty messages":    {api.ChatPath, `{"model":"m","messages":[]}`, "messages"},
		"messages a string": {api.ChatPath, `{"model":"m","messages":"hi"}`, "messages"},
		"no prompt":         {api.CompletionPath, `{"model":"m","messages":[{}]}`, "prompt"},
		"null prompt":       {api.CompletionPath, `{"model":"m","prompt":null}`, "prompt"},
		"stream a string":   {api.CompletionPath, `{"model":"m","prompt":"","stream":"yes"}`, "stream"},
	} {
		t.Run(name, func(t *testing.T) {
			call, err := pass(t, c.body, api.Passing{Path: c.path, Model: "m"})
			var e *api.Error
			if !errors.As(err, &e) || e.Status != 400 || e.Param != c.param {
				t.Errorf("Raw = %+v, %v; want a 400 about %s", call, err, c.param)
			}
		})
	}
}

func TestRawWrites(t *testing.T) {
	w := httptest.NewRecorder()
	s := api.NewStream(w, 0)
	must(t, s.Raw([]byte(`{ "a":1.0,"b":"<é>" }`)))
	must(t, s.Raw([]byte("{\r\n \"a\":\n1}")))
	want := "data: { \"a\":1.0,\"b\":\"<é>\" }\n\ndata: {   \"a\": 1}\n\n"
	if got := w.Body.String(); got != want {
		t.Errorf("stream is %q, want %q", got, want)
	}
	w = httptest.NewRecorder()
	must(t, api.WriteRaw(w, []byte(`{ "a": 1 }`)))
	if got := w.Body.String(); got != `{ "a": 1 }` || w.Header().Get("Content-Length") != "10" || w.Code != 200 {
		t.Errorf("reply is %d %q %v", w.Code, got, w.Header())
	}
}
