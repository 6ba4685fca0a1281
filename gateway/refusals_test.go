package gateway_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestBadInput holds that every wrong request is a clear 4xx before anything is queued, and that the process is unharmed.
func TestBadInput(t *testing.T) {
	r := newRig()
	r.model.Context = 64
	r.serve(t)
	chat := func(rest string) string {
		return `{"model":"fake","messages":[{"role":"user","content":"hi"}]` + rest + `}`
	}
	cases := []struct {
		name, path, body string
		status           int
		code             string
		say              []string
	}{
		{"empty messages", chatPath, `{"model":"fake","messages":[]}`, 400, "invalid_value", []string{"messages is empty"}},
		{"absent messages", chatPath, `{"model":"fake"}`, 400, "invalid_value", []string{"messages is empty"}},
		{"unknown role", chatPath, `{"model":"fake","messages":[{"role":"wizard","content":"x"}]}`, 400, "invalid_value", []string{"wizard"}},
		{"wrong type", chatPath, `{"model":"fake","messages":"hi"}`, 400, "invalid_type", []string{"list"}},
		{"prompt over the context", chatPath, `{"model":"fake","messages":[{"role":"user","content":"` + strings.Repeat("x", 90) + `"}]}`, 400, "context_length_exceeded", []string{"97 tokens", "64"}},
		{"NaN", chatPath, chat(`,"temperature":NaN`), 400, "invalid_json", []string{"'N'"}},
		{"negative", chatPath, chat(`,"temperature":-0.1`), 400, "invalid_value", []string{"-0.1"}},
		{"huge", chatPath, chat(`,"top_k":1e300`), 400, "invalid_value", []string{"top_k"}},
		{"misspelt key", chatPath, chat(`,"qr_alhpa":0.3`), 400, "invalid_value", []string{"qr_alhpa", "qr_alpha"}},
		{"qr_alpha 2", chatPath, chat(`,"qr_alpha":2`), 400, "invalid_value", []string{"qr_alpha is 2", "-1 to 1"}},
		{"qr_lookahead_k 0", chatPath, chat(`,"qr_lookahead_k":0`), 400, "invalid_value", []string{"qr_lookahead_k is 0"}},
		{"token ids out of range", textPath, `{"model":"fake","prompt":[1,99999]}`, 400, "invalid_value", []string{"prompt[1]", "99999"}},
		{"invalid UTF-8", chatPath, chat(",\"user\":\"\xff\""), 400, "invalid_value", []string{"UTF-8"}},
		{"deep JSON", chatPath, strings.Repeat("[", 5_000_000), 400, "invalid_value", []string{"64 levels"}},
		{"unknown model", chatPath, `{"model":"gpt-4","messages":[{"role":"user","content":"hi"}]}`, 404, "model_not_found", []string{"gpt-4", "fake"}},
		{"template raises", chatPath, `{"model":"fake","messages":[{"role":"assistant","content":"hi"}]}`, 400, "invalid_value", []string{"template raised"}},
		{"20 MB", chatPath, chat(`,"user":"` + strings.Repeat("x", 20_000_000) + `"`), 413, "body_too_large", []string{"10485760 bytes", "10.0 MiB"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := r.tell(t, c.path, c.body)
			message, code := envelope(t, got.body)
			if got.status != c.status || code != c.code {
				t.Errorf("got %d %s: %s; want %d %s", got.status, code, message, c.status, c.code)
			}
			for _, s := range c.say {
				if !strings.Contains(message, s) {
					t.Errorf("message %q does not say %q", message, s)
				}
			}
		})
	}
	if n := r.direct.jobs.Load(); n != 0 {
		t.Errorf("%d bad requests reached the queue", n)
	}
	if got := r.tell(t, chatPath, hello); got.status != http.StatusOK {
		t.Errorf("a good request afterwards got %d", got.status)
	}
}

// A prompt's error names the field that the request has.
func TestTooLongNamesTheField(t *testing.T) {
	r := newRig()
	r.model.Context = 16
	r.build(t)
	long := strings.Repeat("x", 50)
	for path, body := range map[string]string{
		textPath: `{"model":"fake","prompt":"` + long + `"}`,
		chatPath: `{"model":"fake","messages":[{"role":"user","content":"` + long + `"}]}`,
	} {
		want := map[string]string{textPath: "prompt", chatPath: "messages"}[path]
		if e := decode[errorReply](t, r.ask(path, body).Body.Bytes()).Error; e == nil || e.Param == nil || *e.Param != want {
			t.Errorf("%s: got %+v, want param %s", path, e, want)
		}
	}
}

// A max_tokens beyond the rest of the context is no error.
func TestMaxTokensBeyondTheContext(t *testing.T) {
	r := newRig()
	r.model.Context = 12
	r.build(t)
	w := r.ask(textPath, `{"model":"fake","prompt":"abcdefgh","max_tokens":1000000}`)
	type reply struct {
		Choices []struct {
			FinishReason string `json:"finish_reason"`
		}
		Usage struct {
			CompletionTokens int `json:"completion_tokens"`
		}
	}
	got := decode[reply](t, w.Body.Bytes())
	if w.Code != 200 || got.Choices[0].FinishReason != "length" || got.Usage.CompletionTokens != 4 {
		t.Errorf("got %d %s, want 4 tokens and length", w.Code, w.Body)
	}
}

// A body announced as too large is answered before it is sent.
func TestLargeBodyIsNotRead(t *testing.T) {
	r := newRig().serve(t)
	conn, err := r.connect()
	must(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n{", chatPath)
	got := receive(t, bufio.NewReader(conn))
	if got.status != http.StatusRequestEntityTooLarge || !got.close {
		t.Errorf("got %d (close: %t), want 413 and close", got.status, got.close)
	}
}

// The gateway reads JSON whatever a client calls it.
func TestContentTypeIsNotAsked(t *testing.T) {
	r := newRig().serve(t)
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded"} {
		got, err := r.post(chatPath, kind, hello)
		must(t, err)
		if got.status != http.StatusOK {
			t.Errorf("%q: got %d", kind, got.status)
		}
	}
}
