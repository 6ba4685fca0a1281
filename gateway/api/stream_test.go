package api_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/gateway/api"
)

// event is what a client makes of the stream, read by the rules of the WHATWG, not by those of the writer.
type event struct{ comment, data string }

func parseEvents(t testing.TB, text string) []event {
	t.Helper()
	var out []event
	var data []string
	sc := bufio.NewScanner(strings.NewReader(text))
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		switch line := sc.Text(); {
		case line == "" && data != nil:
			out, data = append(out, event{data: strings.Join(data, "\n")}), nil
		case line == "":
		case strings.HasPrefix(line, ":"):
			out = append(out, event{comment: strings.TrimPrefix(strings.TrimPrefix(line, ":"), " ")})
		case strings.HasPrefix(line, "data:"):
			data = append(data, strings.TrimPrefix(strings.TrimPrefix(line, "data:"), " "))
		default:
			t.Fatalf("line %q is neither a comment nor data", line)
		}
	}
	if data != nil {
		t.Fatalf("the last event is not ended: %q", data)
	}
	return out
}

func TestStream(t *testing.T) {
	w := httptest.NewRecorder()
	s := api.NewStream(w, time.Second)
	if s.Started() || w.Flushed {
		t.Error("something was sent before the first event")
	}
	r := api.NewChatReply(&api.Head{ID: "chatcmpl-1", Model: "m", Created: 5, Fingerprint: "qr-1"})
	must(t, s.Comment("queued\nposition 2"))
	must(t, s.Data(r.First()))
	must(t, s.Data(r.Delta(backends.Event{Content: "<b> & \u2028 日本"})))
	must(t, s.Fail(api.Invalid("x", "x is bad")))
	must(t, s.Done())
	head := `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":5,"model":"m","system_fingerprint":"qr-1","choices":[`
	want := ": queued position 2\n\n" +
		head + `{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n" +
		head + `{"index":0,"delta":{"content":"<b> & \u2028 日本"},"finish_reason":null}]}` + "\n\n" +
		`data: {"error":{"message":"x is bad","type":"invalid_request_error","param":"x","code":"invalid_value"}}` + "\n\n" +
		"data: [DONE]\n\n"
	if diff := cmp.Diff(want, w.Body.String()); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
	for key, value := range map[string]string{"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"} {
		if got := w.Header().Get(key); got != value {
			t.Errorf("%s is %q, want %q", key, got, value)
		}
	}
	if !w.Flushed {
		t.Error("the stream was not flushed")
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// brokenWriter fails from the second write on.
type brokenWriter struct {
	http.ResponseWriter
	writes int
}

func (b *brokenWriter) Write(p []byte) (int, error) {
	if b.writes++; b.writes > 1 {
		return 0, errors.New("broken pipe")
	}
	return len(p), nil
}

func (b *brokenWriter) FlushError() error { return nil }

func TestStreamRemembersItsFirstError(t *testing.T) {
	w := &brokenWriter{ResponseWriter: httptest.NewRecorder()}
	s := api.NewStream(w, 0)
	must(t, s.Comment("one"))
	first := s.Comment("two")
	if first == nil || !strings.Contains(first.Error(), "broken pipe") {
		t.Fatalf("second write: got %v", first)
	}
	if again := s.Data(struct{}{}); !errors.Is(again, first) {
		t.Errorf("third write: got %v, want %v", again, first)
	}
	if w.writes != 2 {
		t.Errorf("%d writes reached the connection, want 2", w.writes)
	}
}

// discard is a connection without cost, so that only the writer's own allocations are counted.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
func (d discard) FlushError() error           { return nil }

func (d discard) SetWriteDeadline(time.Time) error { return nil }

func TestChunkAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := api.NewStream(discard{http.Header{}}, time.Second)
	chat := api.NewChatReply(&api.Head{ID: "chatcmpl-1", Model: "m"})
	text := api.NewTextReply(&api.Head{ID: "cmpl-1", Model: "m"})
	e := backends.Event{Content: "piece of text"}
	send := func() {
		must(t, s.Data(chat.Delta(e)))
		must(t, s.Data(text.Delta(e)))
	}
	send()
	if n := testing.AllocsPerRun(200, send); n != 0 {
		t.Errorf("a chunk of each kind takes %g allocations, want 0", n)
	}
}

func BenchmarkChunk(b *testing.B) {
	s := api.NewStream(discard{http.Header{}}, time.Second)
	r := api.NewChatReply(&api.Head{ID: "chatcmpl-0123456789", Model: "smollm2", Created: 1, Fingerprint: "qr-dev"})
	b.ReportAllocs()
	for b.Loop() {
		must(b, s.Data(r.Delta(backends.Event{Content: " token"})))
	}
}

func FuzzStream(f *testing.F) {
	f.Add("hello", "ping", "think")
	f.Add("a\n\ndata: [DONE]\n\n", "x\r\n\r\ndata: 1", "\x00\u2028<&>")
	f.Add("\xff\xfe", "\xf0", "")
	f.Fuzz(func(t *testing.T, content, comment, reasoning string) {
		w := httptest.NewRecorder()
		s := api.NewStream(w, 0)
		r := api.NewChatReply(&api.Head{ID: "i", Model: "m"})
		must(t, s.Comment(comment))
		must(t, s.Data(r.Delta(backends.Event{Content: content, Reasoning: reasoning})))
		must(t, s.Done())
		events := parseEvents(t, w.Body.String())
		if len(events) != 3 || events[2].data != "[DONE]" || events[0].data != "" {
			t.Fatalf("got events %q", events)
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content   string
					Reasoning string `json:"reasoning_content"`
				}
			}
		}
		must(t, json.Unmarshal([]byte(events[1].data), &chunk))
		got := chunk.Choices[0].Delta
		if got.Content != strings.ToValidUTF8(content, "\ufffd") && validText(content) || got.Reasoning != reasoning && validText(reasoning) {
			t.Errorf("got %q and %q, want %q and %q", got.Content, got.Reasoning, content, reasoning)
		}
	})
}

// validText leaves broken UTF-8 out of the comparison; the writer replaces it, one mark a byte.
func validText(s string) bool { return strings.ToValidUTF8(s, "") == s }
