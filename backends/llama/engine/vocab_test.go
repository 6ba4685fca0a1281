package engine

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"qr-gateway/backends/nesting"
)

func TestVocab(t *testing.T) {
	v := NewVocab([]string{"<s>", " Hello", " world", "!", "</s>", ""}, []TokenFlags{
		TokenHidden | TokenControl, 0, 0, 0, TokenHidden | TokenControl | TokenEOG,
	})
	v.LeadingSpace = true
	ids := []int32{0, 1, 2, 3, 4}
	if got := string(v.Detokenize(ids, false)); got != "Hello world!" {
		t.Errorf("text as shown: %q", got)
	}
	if got := string(v.Detokenize([]int32{5, 0, 2, 2}, false)); got != "world world" {
		t.Errorf("only the first space is the tokenizer's: %q", got)
	}
	if got := string(v.Detokenize(ids, true)); got != "<s> Hello world!</s>" {
		t.Errorf("text with control tokens: %q", got)
	}
	if got := string(v.Piece(1)); got != " Hello" {
		t.Errorf("an answer lost its space: %q", got)
	}
	for _, id := range []int32{-1, 6, 1 << 30, -1 << 31} {
		if v.Piece(id) != nil || v.SpecialPiece(id) != nil || v.EOG(id) || v.Control(id) {
			t.Errorf("token %d exists", id)
		}
	}
	if !v.EOG(4) || v.EOG(0) || !v.Control(0) || v.Control(1) || v.Len() != 6 {
		t.Error("wrong flags or length")
	}
	if got := v.MinTokens(60); got != 10 {
		t.Errorf("60 bytes with pieces of at most 6: at least %d tokens", got)
	}
	if p := v.Piece(1); cap(p) != len(p) {
		t.Error("appending to a piece would write into the next")
	}
}

func TestContextConfigNamesTheValue(t *testing.T) {
	good := ContextConfig{Context: 256, Batch: 64, UBatch: 64, Sequences: 2, Outputs: 2, Threads: 1}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	bad := good
	bad.Outputs = 1
	if err := bad.Validate(); !errors.Is(err, ErrBadArgument) || !strings.Contains(err.Error(), "outputs is 1, must be from 2 to 64") {
		t.Error(err)
	}
}

func TestFilesThatAreNoModels(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"):      "no such file",
		dir:                             "is a directory",
		write("empty", ""):              "is empty",
		write("short", "GG"):            "not a GGUF file",
		write("zip", "PK\x03\x04...."):  "not a GGUF file",
		write("head", "GGUF\x03\x00"):   "truncated: 6 bytes",
		write("json", `{"model":"no"}`): `begins with "{\"mo"`,
	} {
		err := checkFile(path)
		var me *ModelError
		if !errors.As(err, &me) || me.Path != path || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// Brackets in strings don't count, and what the reader would accept up to the limit passes.
func FuzzDepth(f *testing.F) {
	for _, seed := range []string{`[{"a":"[[[\"{"}]`, strings.Repeat("[", 65), `"\\[`, `{"a":[1,{}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v any
		if json.Unmarshal(data, &v) != nil {
			return
		}
		if got, want := nesting.Deeper(data, maxChatDepth) >= 0, depthOf(v) > maxChatDepth; got != want {
			t.Errorf("%q: %v, want %v", data, got, want)
		}
	})
}

func depthOf(v any) int {
	deepest := 0
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			deepest = max(deepest, depthOf(e))
		}
	case map[string]any:
		for _, e := range v {
			deepest = max(deepest, depthOf(e))
		}
	default:
		return 0
	}
	return deepest + 1
}
