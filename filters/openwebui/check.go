package openwebui

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Error is a file that Open WebUI would not import, or a filter that it would change.
type Error struct {
	Message string // names the thing
	Hint    string // the remedy
}

func (e *Error) Error() string { return e.Message + " (" + e.Hint + ")" }

func wrong(hint, format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...), Hint: hint}
}

const again = "make the file anew: qr-gateway filter export"

// Parse reads a file as Open WebUI's page imports it, and finds what it would refuse, or drop without a word. The error is an *[Error].
func Parse(data []byte) (Function, error) {
	var all []json.RawMessage
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return Function{}, wrong("put [ and ] around it", "read filter: the file is an object, and Open WebUI imports nothing but an array")
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return Function{}, wrong(again, "read filter: the file is no JSON array: %v", err)
	}
	if len(all) != 1 {
		return Function{}, wrong(again, "read filter: the file has %d functions, and this filter is one", len(all))
	}
	var f Function
	if err := json.Unmarshal(all[0], &f); err != nil {
		return Function{}, wrong(again, "read filter: %s", fieldOf(err))
	}
	return f, f.check()
}

func fieldOf(err error) string {
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		return fmt.Sprintf("%s is a %s and must be a %s", typ.Field, typ.Value, typ.Type)
	}
	return err.Error()
}

// Check reports whether data is the very file that this version of the program exports.
func Check(data []byte) error {
	f, err := Parse(data)
	if err != nil {
		return err
	}
	files, err := Export()
	if err != nil {
		return err
	}
	if bytes.Equal(data, files.JSON) {
		return nil
	}
	own, err := Parse(files.JSON)
	if err != nil {
		return err
	}
	if got, want := f.Meta.Manifest["version"], own.Meta.Manifest["version"]; got != want {
		return wrong(again, "check filter: the file has version %q, and this program makes %q", got, want)
	}
	return wrong(again, "check filter: the file was changed since it was exported")
}

var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// rewritten are the words that Open WebUI replaces wherever they stand in a function, help texts included.
var rewritten = []string{"from utils", "from apps", "from main", "from config"}

func (f Function) check() error {
	switch {
	case !identifier.MatchString(f.ID):
		return wrong("use small letters, digits and _", "read filter: its id is %q, and Open WebUI takes no such id", f.ID)
	case f.Name == "":
		return wrong(again, "read filter: it has no name")
	case !strings.Contains(f.Content, "class Filter"):
		return wrong(again, "read filter: its content has no class Filter")
	}
	for _, words := range rewritten {
		if strings.Contains(f.Content, words) {
			return wrong("say it in other words", "read filter: its content has the words %q, which Open WebUI replaces", words)
		}
	}
	manifest, err := frontmatter(f.Content)
	if err != nil {
		return err
	}
	if manifest["requirements"] != "" {
		return wrong("leave requirements out", "read filter: it requires %q, which Open WebUI would install with pip", manifest["requirements"])
	}
	return nil
}

var manifestLine = regexp.MustCompile(`(?i)^\s*([a-z_]+):\s*(.*)\s*$`)

// frontmatter is what Open WebUI reads about a function at the head of its code.
func frontmatter(python string) (map[string]string, error) {
	lines := bufio.NewScanner(strings.NewReader(python))
	if !lines.Scan() || strings.TrimSpace(lines.Text()) != `"""` {
		return nil, wrong(again, `read filter: its content must begin with a line of """ and nothing else`)
	}
	out := map[string]string{}
	for lines.Scan() && !strings.Contains(lines.Text(), `"""`) {
		if m := manifestLine.FindStringSubmatch(lines.Text()); m != nil {
			out[m[1]] = strings.TrimSpace(m[2])
		}
	}
	if err := lines.Err(); err != nil {
		return nil, wrong(again, "read filter: %v", err)
	}
	for _, key := range []string{"title", "version"} {
		if out[key] == "" {
			return nil, wrong(again, "read filter: its content begins without a line `%s: ...`", key)
		}
	}
	return out, nil
}
