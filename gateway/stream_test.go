package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// chunk has every field that a chunk of either kind may have; unknown ones are an error.
type chunk struct {
	ID          string          `json:"id"`
	Object      string          `json:"object"`
	Created     int64           `json:"created"`
	Model       string          `json:"model"`
	Fingerprint string          `json:"system_fingerprint"`
	Choices     []choice        `json:"choices"`
	Usage       json.RawMessage `json:"usage"`
	QR          json.RawMessage `json:"qr"`
}

type choice struct {
	Index    int             `json:"index"`
	Text     *string         `json:"text"`
	Logprobs json.RawMessage `json:"logprobs"`
	Delta    *struct {
		Role      string  `json:"role"`
		Content   *string `json:"content"`
		Reasoning *string `json:"reasoning_content"`
	} `json:"delta"`
	FinishReason json.RawMessage `json:"finish_reason"`
}

func (c choice) text() string {
	switch {
	case c.Text != nil:
		return *c.Text
	case c.Delta != nil && c.Delta.Content != nil:
		return *c.Delta.Content
	default:
		return ""
	}
}

type tester interface {
	Helper()
	Fatalf(string, ...any)
}

// dataLines are the events of a stream; comments are left out, anything else is an error.
func dataLines(t tester, stream string) []string {
	t.Helper()
	if !strings.HasSuffix(stream, "\n\n") {
		t.Fatalf("stream ends within an event: %.100q", stream)
	}
	var out []string
	for _, block := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		switch data, ok := strings.CutPrefix(block, "data: "); {
		case strings.HasPrefix(block, ": "):
		case !ok || strings.Contains(data, "\n"):
			t.Fatalf("event %q is neither a comment nor one line of data", block)
		default:
			out = append(out, data)
		}
	}
	return out
}

// answer is what a stream amounts to.
type answer struct {
	text, finish string
	chunks       int
}

// checkStream holds the schema of a whole stream.
func checkStream(t tester, stream string, chat, usage bool) answer {
	t.Helper()
	lines := dataLines(t, stream)
	if len(lines) < 2 || lines[len(lines)-1] != "[DONE]" {
		t.Fatalf("stream does not end with [DONE]: %q", lines)
	}
	var all []chunk
	for _, line := range lines[:len(lines)-1] {
		all = append(all, strictChunk(t, line))
	}
	checkSame(t, all)
	if chat {
		checkRole(t, all)
	}
	if usage {
		last := all[len(all)-1]
		if len(last.Choices) != 0 || last.Usage == nil || last.QR == nil {
			t.Fatalf("the last chunk is no usage chunk: %+v", last)
		}
		all = all[:len(all)-1]
	}
	return checkChoices(t, all, !usage)
}

func strictChunk(t tester, line string) chunk {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(line))
	dec.DisallowUnknownFields()
	var c chunk
	if err := dec.Decode(&c); err != nil {
		t.Fatalf("chunk %s: %v", line, err)
	}
	if c.Choices == nil {
		t.Fatalf("chunk %s has no choices", line)
	}
	return c
}

func checkSame(t tester, all []chunk) {
	t.Helper()
	first := all[0]
	for _, c := range all {
		if c.ID != first.ID || c.Model != first.Model || c.Created != first.Created || c.Object != first.Object || c.Fingerprint != first.Fingerprint || c.Fingerprint == "" {
			t.Fatalf("chunk heads differ: %+v and %+v", first, c)
		}
	}
}

func checkRole(t tester, all []chunk) {
	t.Helper()
	for i, c := range all {
		for _, ch := range c.Choices {
			if (ch.Delta.Role == "assistant") != (i == 0) || i == 0 && (ch.Delta.Content == nil || *ch.Delta.Content != "") {
				t.Fatalf("chunk %d has delta %+v", i, ch.Delta)
			}
		}
	}
}

// checkChoices holds that finish_reason is there in every chunk and null in all but the last.
func checkChoices(t tester, all []chunk, qr bool) answer {
	t.Helper()
	out := answer{chunks: len(all)}
	for i, c := range all {
		last := i == len(all)-1
		if len(c.Choices) != 1 || c.Usage != nil || (c.QR != nil) != (qr && last) {
			t.Fatalf("chunk %d of %d is %+v", i, len(all), c)
		}
		ch := c.Choices[0]
		if (string(ch.FinishReason) == "null") == last || len(ch.FinishReason) == 0 {
			t.Fatalf("chunk %d of %d has finish_reason %q", i, len(all), ch.FinishReason)
		}
		out.text += ch.text()
		out.finish = strings.Trim(string(ch.FinishReason), `"`)
	}
	return out
}

type whole struct {
	Object  string
	Choices []struct {
		Text         string
		Message      struct{ Role, Content string }
		FinishReason string `json:"finish_reason"`
	}
	Usage struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		TotalTokens      int `json:"total_tokens"`
	}
	QR *struct {
		Decoder       string
		EntropySource string `json:"entropy_source"`
	}
}

// Every stream is well formed and says the same as the reply in one piece.
func TestStreamsHoldTheSchema(t *testing.T) {
	r := newRig().build(t)
	rapid.Check(t, func(t *rapid.T) {
		chat, usage := rapid.Bool().Draw(t, "chat"), rapid.Bool().Draw(t, "usage")
		fields := fmt.Sprintf(`"model":"fake","seed":%d,"max_tokens":%d`, rapid.Int64().Draw(t, "seed"), rapid.IntRange(1, 60).Draw(t, "max"))
		if stop := rapid.SampledFrom([]string{"", "river ", "e", "日本 the"}).Draw(t, "stop"); stop != "" {
			fields += fmt.Sprintf(`,"stop":%q`, stop)
		}
		prompt, err := json.Marshal(rapid.StringN(1, 20, 100).Draw(t, "prompt"))
		if err != nil {
			t.Fatalf("encode prompt: %v", err)
		}
		path, rest := textPath, fmt.Sprintf(`,"prompt":%s`, prompt)
		if chat {
			path, rest = chatPath, fmt.Sprintf(`,"messages":[{"role":"user","content":%s}]`, prompt)
		}
		streaming := fmt.Sprintf(`,"stream":true,"stream_options":{"include_usage":%t}`, usage)
		streamed := r.ask(path, "{"+fields+rest+streaming+"}")
		got := checkStream(t, streamed.Body.String(), chat, usage)
		var want whole
		if err := json.Unmarshal(r.ask(path, "{"+fields+rest+"}").Body.Bytes(), &want); err != nil {
			t.Fatalf("decode reply: %v", err)
		}
		c := want.Choices[0]
		if got.text != c.Text+c.Message.Content || got.finish != c.FinishReason {
			t.Fatalf("stream said %q (%s), the whole reply %q (%s)", got.text, got.finish, c.Text+c.Message.Content, c.FinishReason)
		}
	})
}

func TestWholeReply(t *testing.T) {
	r := newRig().build(t)
	w := r.ask(chatPath, strings.Replace(hello, "}]", `}],"qr_alpha":0.3`, 1))
	got := decode[whole](t, w.Body.Bytes())
	if w.Code != 200 || got.Object != "chat.completion" || got.Choices[0].Message.Role != "assistant" || got.Choices[0].Message.Content == "" {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	if got.Usage.PromptTokens != len("user: hi\n") || got.Usage.TotalTokens != got.Usage.PromptTokens+got.Usage.CompletionTokens {
		t.Errorf("usage is %+v", got.Usage)
	}
	if got.QR == nil || got.QR.Decoder != "lookahead" || got.QR.EntropySource != "seed" {
		t.Errorf("qr is %+v", got.QR)
	}
}

func TestOutcomes(t *testing.T) {
	r := newRig().build(t)
	r.ask(chatPath, strings.Replace(hello, "{", `{"stream":true,`, 1))
	o := r.seen.last(t)
	if o.Route != chatPath || o.Model != "fake" || o.Status != 200 || !o.Stream || o.Result == nil || o.FirstToken <= 0 || o.Duration < o.FirstToken {
		t.Errorf("a good stream was seen as %+v", o)
	}
	r.ask(chatPath, `{"model":"none"}`)
	if o := r.seen.last(t); o.Status != 404 || o.Code != "model_not_found" || o.Model != "" || o.Result != nil {
		t.Errorf("an unknown model was seen as %+v", o)
	}
}
