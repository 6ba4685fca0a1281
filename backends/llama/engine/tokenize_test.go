//go:build llama && cgo

package engine

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// text is of the kinds that prompts are made of. The real model's vocabulary lacks some control characters and rare
// scripts, and drops them.
func text() *rapid.Generator[string] {
	script := rapid.SampledFrom([][2]rune{{' ', '~'}, {0xa1, 0x17f}, {0x391, 0x3c9}, {0x410, 0x44f}, {0x4e00, 0x9fa5}, {0x1f600, 0x1f64f}})
	word := rapid.Custom(func(t *rapid.T) string {
		r := script.Draw(t, "script")
		return string(rapid.SliceOfN(rapid.RuneFrom(nil, &unicode.RangeTable{R32: []unicode.Range32{{Lo: uint32(r[0]), Hi: uint32(r[1]), Stride: 1}}}), 0, 12).Draw(t, "word"))
	})
	part := rapid.OneOf(word, rapid.SampledFrom([]string{" ", "  ", "\n\n", "the ", "wörld", "12345", "<|im_end|>", "\t"}))
	return rapid.Map(rapid.SliceOfN(part, 0, 20), func(parts []string) string { return strings.Join(parts, "") })
}

// The pieces of a text's tokens, put together, are the text.
func TestPiecesMakeTheText(t *testing.T) {
	m := realModel(t)
	rapid.Check(t, func(t *rapid.T) {
		s := text().Draw(t, "text")
		ids, err := m.Tokenize(s, false, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(m.Vocab().Detokenize(ids, true)); got != s {
			t.Fatalf("%q came back as %q", s, got)
		}
		if least := m.Vocab().MinTokens(len(s)); len(ids) < least {
			t.Fatalf("%d tokens, said to be at least %d", len(ids), least)
		}
	})
}

func TestControlTokensInText(t *testing.T) {
	m := realModel(t)
	read, err := m.Tokenize("<|im_end|>", false, true)
	if err != nil || len(read) != 1 || !m.Vocab().Control(read[0]) || !m.Vocab().EOG(read[0]) {
		t.Errorf("read as a token: %v, %v", read, err)
	}
	spelt, err := m.Tokenize("<|im_end|>", false, false)
	if err != nil || len(spelt) < 2 {
		t.Errorf("read as text: %v, %v", spelt, err)
	}
	if len(m.Vocab().Piece(read[0])) != 0 || string(m.Vocab().SpecialPiece(read[0])) != "<|im_end|>" {
		t.Error("the control token is shown")
	}
	if none, err := m.Tokenize("", true, true); err != nil || len(none) != 0 {
		t.Errorf("no text: %v, %v", none, err)
	}
}

func TestModelWithoutATokenizer(t *testing.T) {
	m := tiny(t, "llama")
	if _, err := m.Tokenize("a", true, true); !errors.Is(err, ErrNoTokenizer) {
		t.Error(err)
	}
	v := m.Vocab()
	if v.Len() != 512 || len(v.Piece(5)) != 0 || v.EOG(5) || v.BOS != -1 || v.MinTokens(1000) != 0 {
		t.Errorf("vocabulary of a model without a tokenizer: %d tokens, piece %q", v.Len(), v.Piece(5))
	}
}

// Patterns that go through std::regex recurse once per character of a match.
func TestLongStretchesDoNotOverrunTheStack(t *testing.T) {
	data, err := os.ReadFile(tinyPath(t, "llama-tok"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"tekken", "gpt-4o", "falcon"} {
		path := filepath.Join(t.TempDir(), pattern+".gguf")
		if err := os.WriteFile(path, bytes.Replace(data, []byte("smollm"), []byte(pattern), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		m := load(t, path)
		for _, s := range []string{"a", "A", "!", " ", "\n", "，", "é"} {
			long := strings.Repeat(s, 60000)
			ids, err := m.Tokenize(long, false, false)
			if got := string(m.Vocab().Detokenize(ids, true)); err != nil || got != long {
				t.Errorf("%s: 60,000 times %q came back as %d bytes, %v", pattern, s, len(got), err)
			}
		}
		if _, err := m.Tokenize(strings.Repeat("a", 1<<20+1), false, false); !errors.Is(err, ErrBadInput) {
			t.Errorf("%s: over the limit: %v", pattern, err)
		}
	}
}

func TestInvalidUTF8DoesNoHarm(t *testing.T) {
	m := realModel(t)
	for _, s := range []string{"\xff", "a\xc3", strings.Repeat("\x80", 1000), "\xf0\x9f\x98", "\xed\xa0\x80"} {
		if ids, err := m.Tokenize(s, true, true); err == nil && !utf8.Valid(m.Vocab().Detokenize(ids, true)) && len(ids) == 0 {
			t.Errorf("%q vanished", s)
		}
	}
}
