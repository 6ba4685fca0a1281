package worker

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/backends/llama/engine"
	"qr-gateway/backends/text"
)

// parseThought splits at the end of a thought, and hides what may be the beginning of a tag, as the real parser does.
func parseThought(_ []byte, s string, partial bool) (engine.ChatMessage, error) {
	thought, content, found := strings.Cut(s, "</t>")
	if found {
		return engine.ChatMessage{Content: content, Reasoning: thought}, nil
	}
	if partial {
		for n := len("</t>") - 1; n > 0; n-- {
			if strings.HasSuffix(thought, "</t>"[:n]) {
				thought = thought[:len(thought)-n]
				break
			}
		}
	}
	return engine.ChatMessage{Reasoning: thought}, nil
}

// collect sends pieces through an answer.
func collect(a *answer, pieces []string) (content, reasoning string) {
	for _, p := range pieces {
		c, r, stopped := a.add([]byte(p))
		content, reasoning = content+c, reasoning+r
		if stopped {
			return content, reasoning
		}
	}
	c, r := a.end()
	return content + c, reasoning + r
}

func TestAnswerSplitsThoughts(t *testing.T) {
	for name, c := range map[string]struct {
		pieces             []string
		stops              []string
		content, reasoning string
	}{
		"thought and content": {[]string{"I ", "think<", "/t", ">so", " it is"}, nil, "so it is", "I think"},
		"thought alone":       {[]string{"I ", "think</"}, nil, "", "I think</"},
		"stop in the content": {[]string{"a</t>b", "END", "c"}, []string{"END"}, "b", "a"},
		"half a rune":         {[]string{"\xe2", "\x82", "\xac</t>\xe2\x82"}, nil, "\ufffd\ufffd", "€"},
	} {
		a := newAnswer(text.NewStops(c.stops, false), parseThought, []byte("format"))
		if content, reasoning := collect(a, c.pieces); content != c.content || reasoning != c.reasoning {
			t.Errorf("%s: got %q and %q, want %q and %q", name, content, reasoning, c.content, c.reasoning)
		}
	}
}

func TestAnswerLaw(t *testing.T) {
	piece := rapid.StringOfN(rapid.RuneFrom([]rune("ab€</t>")), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOfN(piece, 0, 400).Draw(t, "pieces")
		whole := strings.Join(pieces, "")
		want, err := parseThought(nil, whole, false)
		if err != nil {
			t.Fatal(err)
		}
		a := newAnswer(text.NewStops(nil, false), parseThought, []byte("format"))
		if content, reasoning := collect(a, pieces); content != want.Content || reasoning != want.Reasoning {
			t.Fatalf("got %q and %q, want %+v", content, reasoning, want)
		}
		plain := newAnswer(text.NewStops(nil, false), parseThought, nil)
		if content, reasoning := collect(plain, pieces); content != whole || reasoning != "" {
			t.Fatalf("without a format: got %q and %q, want %q", content, reasoning, whole)
		}
	})
}

func TestAnswerThatCannotBeParsed(t *testing.T) {
	bad := func([]byte, string, bool) (engine.ChatMessage, error) {
		return engine.ChatMessage{}, errors.New("no such form")
	}
	a := newAnswer(text.NewStops(nil, false), bad, []byte("format"))
	if content, reasoning := collect(a, []string{"what ", "it said"}); content != "what it said" || reasoning != "" {
		t.Errorf("got %q and %q, want the words as they are", content, reasoning)
	}
}

func TestAnswerParsesLongTextsLessOften(t *testing.T) {
	parses := 0
	count := func(_ []byte, s string, _ bool) (engine.ChatMessage, error) {
		parses++
		return engine.ChatMessage{Content: s}, nil
	}
	a := newAnswer(text.NewStops(nil, false), count, []byte("format"))
	pieces := strings.SplitAfter(strings.Repeat("word ", 10000), " ")
	if content, _ := collect(a, pieces); len(content) != 50000 {
		t.Errorf("%d bytes came through", len(content))
	}
	if parses > 2500 {
		t.Errorf("parsed %d times for 10000 tokens", parses)
	}
}
