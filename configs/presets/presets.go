// Package presets holds named sets of parameters: those that the program brings along, which lie beside this file, and those of a folder
// of the user's. A [Library] never changes once made and may be shared.
package presets

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"qr-gateway/sampler"
)

//go:embed *.yaml
var files embed.FS

// Preset is one file.
type Preset struct {
	Name         string         `yaml:"name" json:"name"` // also the file's, without .yaml
	Title        string         `yaml:"title" json:"title"`
	Description  string         `yaml:"description" json:"description"`
	Experimental bool           `yaml:"experimental" json:"experimental"`
	Sets         map[string]any `yaml:"sets" json:"sets"` // parameters by their qr_ keys
	BuiltIn      bool           `yaml:"-" json:"built_in"`
}

// Library is all presets of a process, by name. The zero value has none.
type Library struct {
	all   []Preset // by name
	names []string
}

// maxFile bounds a file of a preset, in bytes.
const maxFile = 64 << 10

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)

// BuiltIn returns the presets that the program brings along.
func BuiltIn() (Library, error) { return builtIn() }

// builtIn reads the files once: they are part of the program.
var builtIn = sync.OnceValues(func() (Library, error) { return read(nil, files, ".", true) })

// Load returns those that the program brings along and those of the folder dir. A file of the folder replaces a preset of the same name.
func Load(dir string) (Library, error) {
	own, err := BuiltIn()
	if err != nil {
		return Library{}, err
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return Library{}, fmt.Errorf("read presets: %w", err)
	case !info.IsDir():
		return Library{}, fmt.Errorf("read presets: %s is no folder", dir)
	}
	return read(own.all, os.DirFS(dir), dir, false)
}

// All returns every preset by name, for reading only.
func (l Library) All() []Preset { return l.all }

// Names returns the names in order, for reading only.
func (l Library) Names() []string { return l.names }

// Find returns the preset called name. The error is a *[sampler.ParamError] that lists what there is.
func (l Library) Find(name string) (Preset, error) {
	at, ok := slices.BinarySearch(l.names, name)
	if !ok {
		return Preset{}, sampler.UnknownPreset(name, l.names)
	}
	return l.all[at], nil
}

// Values are the parameters that the preset called name sets, for reading only. The error is as Find's.
func (l Library) Values(name string) (map[string]any, error) {
	p, err := l.Find(name)
	return p.Sets, err
}

// Equal reports whether both have presets of the same names.
func (l Library) Equal(m Library) bool { return slices.Equal(l.names, m.names) }

// read adds the files of a folder to those that there are. where is the folder's name in errors.
func read(have []Preset, from fs.FS, where string, builtIn bool) (Library, error) {
	names, err := fs.Glob(from, "*.yaml")
	others, err2 := fs.Glob(from, "*.yml")
	if err := errors.Join(err, err2); err != nil {
		return Library{}, fmt.Errorf("read presets: %w", err)
	}
	all := slices.Clone(have)
	var errs []error
	for _, name := range slices.Concat(names, others) {
		p, err := parse(from, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("read preset %s: %w", filepath.Join(where, name), err))
			continue
		}
		p.BuiltIn = builtIn
		all = slices.DeleteFunc(all, func(q Preset) bool { return q.Name == p.Name })
		all = append(all, p)
	}
	slices.SortFunc(all, func(p, q Preset) int { return strings.Compare(p.Name, q.Name) })
	l := Library{all: all}
	for _, p := range all {
		l.names = append(l.names, p.Name)
	}
	return l, errors.Join(errs...)
}

func parse(from fs.FS, name string) (Preset, error) {
	info, err := fs.Stat(from, name)
	switch {
	case err != nil:
		return Preset{}, err
	case !info.Mode().IsRegular(): // opening a pipe would wait for its writer
		return Preset{}, errors.New("it is no file")
	case path.Ext(name) != ".yaml":
		return Preset{}, errors.New("the file of a preset ends in .yaml; rename it")
	}
	f, err := from.Open(name)
	if err != nil {
		return Preset{}, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return Preset{}, err
	}
	if len(data) > maxFile {
		return Preset{}, fmt.Errorf("it has more than %d bytes", maxFile)
	}
	return Parse(data, strings.TrimSuffix(path.Base(name), ".yaml"))
}

// Parse reads the text of one file. name is the file's, without .yaml. Unknown keys and values that can't be taken are errors.
func Parse(data []byte, name string) (Preset, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	var p Preset
	if err := dec.Decode(&p); err != nil {
		return Preset{}, undecoded(err)
	}
	if err := dec.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return Preset{}, errors.New("decode: more than one document; give each preset a file of its own")
	}
	for key, value := range p.Sets {
		p.Sets[key] = textKeys(value)
	}
	return p, p.check(name)
}

// undecoded says what is wrong with a file without the names of Go.
func undecoded(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("decode: the file is empty")
	}
	return errors.New("decode: " + strings.NewReplacer(
		"not found in type presets.Preset", "is unknown; there are name, title, description, experimental and sets",
		"map[string]interface {}", "keys with values",
	).Replace(strings.TrimPrefix(err.Error(), "yaml: ")))
}

// textKeys lets a map have numbers as keys, as the token ids of a bias are.
func textKeys(value any) any {
	m, ok := value.(map[any]any)
	if !ok {
		return value
	}
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[fmt.Sprint(k)] = v
	}
	return out
}

func (p *Preset) check(file string) error {
	switch {
	case !nameForm.MatchString(p.Name):
		return fmt.Errorf("name is %q; it takes up to 63 of a-z, 0-9, _, . and -, a letter or digit first", p.Name)
	case p.Name != file:
		return fmt.Errorf("name is %q; it takes the name of the file, %q", p.Name, file)
	case len(p.Sets) == 0:
		return errors.New("sets is empty; it takes parameters, such as qr_temperature: 0.8")
	}
	return errors.Join(sampler.CheckPreset(p.Sets)...)
}
