//go:build llama && cgo

package engine

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func apply(t testing.TB, m *Model, messages string) ChatPrompt {
	t.Helper()
	p, err := m.ApplyTemplate(ChatInput{Messages: json.RawMessage(messages), AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// withTemplate loads the tiny model that has a tokenizer, with its chat template replaced in the file.
func withTemplate(t *testing.T, template string) *Model {
	t.Helper()
	data, err := os.ReadFile(tinyPath(t, "llama-tok"))
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("tokenizer.chat_template")
	at := bytes.Index(data, key) + len(key) + 4 // behind the value's type
	old := int(binary.LittleEndian.Uint64(data[at:]))
	// The tensors behind are aligned to 32 bytes: the new value is padded, by a comment, to keep them so.
	for (len(template)-old)%32 != 0 || len(template) < old {
		template = pad(template, old)
	}
	out := binary.LittleEndian.AppendUint64(bytes.Clone(data[:at]), uint64(len(template)))
	out = append(append(out, template...), data[at+8+old:]...)
	path := filepath.Join(t.TempDir(), "template.gguf")
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return load(t, path)
}

func pad(template string, old int) string {
	n := 4
	for (len(template)+n-old)%32 != 0 || len(template)+n < old {
		n++
	}
	return template + "{#" + strings.Repeat("-", n-4) + "#}"
}

func TestTemplateOfTheRealModel(t *testing.T) {
	m := realModel(t)
	p := apply(t, m, `[{"role":"user","content":"Hi \"you\" – ok?"}]`)
	want := "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n" +
		"<|im_start|>user\nHi \"you\" – ok?<|im_end|>\n<|im_start|>assistant\n"
	if diff := cmp.Diff(want, p.Prompt); diff != "" {
		t.Error(diff)
	}
	if p.SplitsText || !p.AddSpecial {
		t.Errorf("prompt %+v: the text of this model is its content", p)
	}
	none, err := m.ApplyTemplate(ChatInput{Messages: json.RawMessage(`[{"role":"user","content":"Hi"}]`)})
	if err != nil || strings.HasSuffix(none.Prompt, "assistant\n") {
		t.Errorf("without a generation prompt: %q, %v", none.Prompt, err)
	}
}

const raising = `{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('Tools: not "here", please: sorry.') }}{% endif %}` +
	`<{{ m.role }}>{{ m.content }}{% endfor %}`

func TestTemplateThatRaises(t *testing.T) {
	m := withTemplate(t, raising)
	for range 2 {
		_, err := m.ApplyTemplate(ChatInput{Messages: json.RawMessage(`[{"role":"tool","content":"x"}]`)})
		var te *TemplateError
		if !errors.As(err, &te) || te.Message != `Tools: not "here", please: sorry.` {
			t.Errorf("got %v", err)
		}
		if p := apply(t, m, `[{"role":"user","content":"x"}]`); p.Prompt != "<user>x" {
			t.Errorf("then got %q", p.Prompt)
		}
	}
}

func TestTemplateThatCannotBeRead(t *testing.T) {
	for _, bad := range []string{"{% for m in %}", "{{ messages[0", "{% endif %}", "{{ nothing.of.this() }}", "{% if %}"} {
		m := withTemplate(t, bad)
		_, err := m.ApplyTemplate(ChatInput{Messages: json.RawMessage(`[{"role":"user","content":"x"}]`)})
		if err == nil || strings.TrimSpace(err.Error()) == "" {
			t.Errorf("%s: no error", bad)
		}
	}
}

const thinking = `{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}`

func TestReasoningIsSplitOff(t *testing.T) {
	m := withTemplate(t, thinking)
	in := ChatInput{Messages: json.RawMessage(`[{"role":"user","content":"x"}]`), AddGenerationPrompt: true}
	off, err := m.ApplyTemplate(in)
	if err != nil || !strings.Contains(off.Prompt, "<think>\n\n</think>") {
		t.Fatalf("thinking off: %q, %v", off.Prompt, err)
	}
	in.Kwargs = json.RawMessage(`{"enable_thinking": true}`)
	on, err := m.ApplyTemplate(in)
	if err != nil || strings.Contains(on.Prompt, "think") || !on.SplitsText {
		t.Fatalf("thinking on by an argument: %+v, %v", on, err)
	}
	for text, want := range map[string]ChatMessage{
		"<think>\na b\n</think>\n\nc d": {Content: "c d", Reasoning: "a b"},
		"<think>\na b":                  {Reasoning: "a b"},
		"just text":                     {Content: "just text"},
		"":                              {},
	} {
		got, err := m.ParseChat(on.Format, text, true)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

const channels = `{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}` +
	`{% if add_generation_prompt %}<|start|>assistant{# then <|channel|> #}{% endif %}`

// Answers of some formats are made of control tokens, which must then not be banned.
func TestFormatNamesItsTokens(t *testing.T) {
	p := apply(t, withTemplate(t, channels), `[{"role":"user","content":"x"}]`)
	if !slices.Contains(p.Preserved, "<|channel|>") || !slices.Contains(p.Preserved, "<|message|>") {
		t.Errorf("preserved %q, want the tokens of the format", p.Preserved)
	}
	if p := apply(t, withTemplate(t, raising), `[{"role":"user","content":"x"}]`); len(p.Preserved) > 0 {
		t.Errorf("preserved %q of a plain format", p.Preserved)
	}
}

// A stream never takes back what it sent: each longer text parses to a longer message.
func TestPartialParsesOnlyGrow(t *testing.T) {
	m := withTemplate(t, thinking)
	p, err := m.ApplyTemplate(ChatInput{Messages: json.RawMessage(`[{"role":"user","content":"x"}]`), AddGenerationPrompt: true, EnableThinking: true})
	if err != nil {
		t.Fatal(err)
	}
	text := "<think>\nFirst I think, < perhaps.\n</think>\n\nThen I say it: a </b> c."
	var last ChatMessage
	for i := range len(text) + 1 {
		got, err := m.ParseChat(p.Format, text[:i], true)
		if err != nil {
			t.Fatalf("%q: %v", text[:i], err)
		}
		if !strings.HasPrefix(got.Content, last.Content) || !strings.HasPrefix(got.Reasoning, last.Reasoning) {
			t.Errorf("%q: %+v after %+v", text[:i], got, last)
		}
		last = got
	}
	if last.Reasoning != "First I think, < perhaps." || last.Content != "Then I say it: a </b> c." {
		t.Errorf("in the end %+v", last)
	}
}

func TestBadChatInput(t *testing.T) {
	m := realModel(t)
	for _, bad := range []string{
		"", "nope", "{}", "[1]", `[{"content":"y"}]`, `[{"role":"user"}]`, `[{"role":1,"content":"y"}]`, `[{"role":"user","content":5}]`,
		`[{"role":"user","content":[{"type":"image_url"}]}]`, "[\"\xff\"]", strings.Repeat("[", 1<<20),
	} {
		if _, err := m.ApplyTemplate(ChatInput{Messages: json.RawMessage(bad)}); !errors.Is(err, ErrBadInput) {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
	ok := json.RawMessage(`[{"role":"user","content":"x"}]`)
	for _, bad := range []string{"nope", "[]", "1", `{"a":` + strings.Repeat("[", 1<<20)} {
		if _, err := m.ApplyTemplate(ChatInput{Messages: ok, Kwargs: json.RawMessage(bad)}); !errors.Is(err, ErrBadInput) {
			t.Errorf("arguments %.40q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "{}", "nope", `{"format":99,"generation_prompt":"","parser":""}`, `{"format":2,"generation_prompt":"","parser":"{"}`} {
		if _, err := m.ParseChat([]byte(bad), "x", true); err == nil {
			t.Errorf("format %q: no error", bad)
		}
	}
	if _, err := tiny(t, "llama").ApplyTemplate(ChatInput{Messages: ok}); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("a model without a template: %v", err)
	}
}
