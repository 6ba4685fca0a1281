// Package openwebui makes the filter that Open WebUI imports. Its code is source.py, written by hand; the parameter table fills in the valves,
// so that each parameter of a request is one, under its own key, with its range and meaning.
package openwebui

import (
	"bytes"
	_ "embed" // source.py
	"encoding/json"
	"fmt"
	"strings"

	"qr-gateway/sampler"
)

const (
	// ID is what Open WebUI knows the filter by. It never changes: whatever was stored for the filter hangs on it.
	ID = "qr_gateway_filter"
	// Name is what its pages show.
	Name = "qr-gateway"
)

//go:embed source.py
var source string

// Files are the filter in the two forms that Open WebUI takes.
type Files struct {
	Python []byte // for its editor, and for an import by link
	JSON   []byte // for the import of a file
}

// Export makes the filter of this version of the program.
func Export() (Files, error) {
	python, err := fill(source, sampler.Fields())
	if err != nil {
		return Files{}, fmt.Errorf("export filter: %w", err)
	}
	f, err := newFunction(python)
	if err != nil {
		return Files{}, fmt.Errorf("export filter: %w", err)
	}
	text, err := f.file()
	return Files{Python: []byte(python), JSON: text}, err
}

// Function is one element of a file that Open WebUI imports.
type Function struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Type    string `json:"type"`
	Content string `json:"content"`
	Meta    Meta   `json:"meta"`
}

// Meta is what its pages tell of a function.
type Meta struct {
	Description string            `json:"description"`
	Manifest    map[string]string `json:"manifest"`
}

func newFunction(python string) (Function, error) {
	manifest, err := frontmatter(python)
	if err != nil {
		return Function{}, err
	}
	f := Function{ID: ID, Name: Name, Type: "filter", Content: python, Meta: Meta{Description: manifest["description"], Manifest: manifest}}
	return f, f.check()
}

// file is an array even of one: the page goes through what it reads, and does nothing at all with an object.
func (f Function) file() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode([]Function{f})
	return b.Bytes(), err
}

// fill puts the generated parts into the source.
func fill(text string, fields []sampler.Field) (string, error) {
	for name, lines := range regions(fields) {
		begin, end := "# <generated: "+name+">\n", "# </generated>\n"
		before, rest, ok := strings.Cut(text, begin)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			return "", fmt.Errorf("fill in source.py: it has no region %q; put the lines %q and %q where it belongs", name, begin, end)
		}
		text = strings.TrimRight(before, " ") + lines + strings.TrimLeft(after, " ")
	}
	return text, nil
}
