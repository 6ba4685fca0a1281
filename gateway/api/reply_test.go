package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/gateway/api"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func head() *api.Head {
	return &api.Head{ID: "id-1", Model: "m", Created: 1700000000, Fingerprint: "qr-1"}
}

func result(reason string) *backends.Result {
	alpha := 0.3
	return &backends.Result{
		Reason: reason, Usage: backends.Usage{PromptTokens: 5, CompletionTokens: 7, CachedTokens: 2},
		Stats: backends.DecodeStats{
			Decoder: "lookahead", Curve: "article", Mode: "lazy", Choice: "sample", AlphaMin: &alpha, AlphaMax: &alpha,
			Peeks: 12, PeeksPerToken: 1.75, EntropySource: "system", USource: "zscore_mean", EntropyBytes: 143360,
		},
	}
}

func indent(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	var out bytes.Buffer
	must(t, json.Indent(&out, raw, "", "  "))
	out.WriteByte('\n')
	return out.Bytes()
}

func TestWholeReplies(t *testing.T) {
	golden(t, "chat.json", indent(t, api.NewChatReply(head()).Whole("text", "", result("stop"))))
	golden(t, "chat_reasoning.json", indent(t, api.NewChatReply(head()).Whole("text", "thought", result("length"))))
	golden(t, "completion.json", indent(t, api.NewTextReply(head()).Whole("text", "", result("length"))))
}

// replier is what both kinds of reply do.
type replier interface {
	First() any
	Delta(backends.Event) any
	End(*backends.Result, bool) []any
}

func TestStreams(t *testing.T) {
	cases := []struct {
		file  string
		reply replier
		usage bool
	}{
		{"chat_stream.txt", api.NewChatReply(head()), false},
		{"chat_stream_usage.txt", api.NewChatReply(head()), true},
		{"completion_stream.txt", api.NewTextReply(head()), false},
		{"completion_stream_usage.txt", api.NewTextReply(head()), true},
	}
	for _, c := range cases {
		t.Run(c.file, func(t *testing.T) {
			w := httptest.NewRecorder()
			s := api.NewStream(w, time.Second)
			if first := c.reply.First(); first != nil {
				must(t, s.Data(first))
			}
			for _, e := range []backends.Event{{Reasoning: "hm"}, {Content: "one"}, {Content: " two"}} {
				must(t, s.Data(c.reply.Delta(e)))
			}
			for _, chunk := range c.reply.End(result("stop"), c.usage) {
				must(t, s.Data(chunk))
			}
			must(t, s.Done())
			golden(t, c.file, w.Body.Bytes())
		})
	}
}

func TestFinishReasons(t *testing.T) {
	for reason, want := range map[string]string{"stop": "stop", "length": "length", "something new": "stop"} {
		var got struct {
			Choices []struct {
				FinishReason string `json:"finish_reason"`
			}
		}
		must(t, json.Unmarshal(indent(t, api.NewChatReply(head()).Whole("", "", result(reason))), &got))
		if got.Choices[0].FinishReason != want {
			t.Errorf("%s became %s, want %s", reason, got.Choices[0].FinishReason, want)
		}
	}
}
