// Package profiles holds what is known about running an inference engine behind the gateway: versions that were tested, how its server is
// started, models that work, and what nobody has tried. The files lie beside this one and are part of the program.
package profiles

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed *.yaml
var files embed.FS

// Profile is one file.
type Profile struct {
	Name        string    `yaml:"name" json:"name"` // also the file's, without .yaml
	Title       string    `yaml:"title" json:"title"`
	Description string    `yaml:"description" json:"description"`
	Backend     string    `yaml:"backend" json:"backend"`     // the kind of backend in the gateway's config
	Platforms   []string  `yaml:"platforms" json:"platforms"` // as GOOS has them
	Devices     []string  `yaml:"devices" json:"devices"`     // what the models may run on, such as cpu or cuda
	Versions    []Version `yaml:"versions" json:"versions"`
	Serve       Serve     `yaml:"serve" json:"serve"`
	Variants    []Variant `yaml:"variants" json:"variants"`
	Avoid       []Avoid   `yaml:"avoid" json:"avoid"`
	Models      []Model   `yaml:"models" json:"models"`     // known to work
	Untested    []string  `yaml:"untested" json:"untested"` // what nobody has tried
}

// Status says how much is known about a version.
type Status string

// What a version's status may be.
const (
	Tested   Status = "tested"   // the project's own tests run it
	Untested Status = "untested" // nobody has tried it
)

// Version is a release of an engine on one device.
type Version struct {
	Package string `yaml:"package" json:"package"` // as it is called in the Python package index
	Version string `yaml:"version" json:"version"`
	Device  string `yaml:"device" json:"device"`
	Runner  string `yaml:"runner" json:"runner"` // v1 or v2, vLLM's model runner
	Status  Status `yaml:"status" json:"status"`
	Note    string `yaml:"note" json:"note"`
}

// Serve is how the engine's server is started.
type Serve struct {
	Command     []string   `yaml:"command" json:"command"`
	Flags       []Flag     `yaml:"flags" json:"flags"`
	Environment []Variable `yaml:"environment" json:"environment"`
}

// Variant is what one device needs beside [Serve].
type Variant struct {
	Device      string     `yaml:"device" json:"device"`
	Flags       []Flag     `yaml:"flags" json:"flags"`
	Environment []Variable `yaml:"environment" json:"environment"`
}

// Flag is one of the command line's.
type Flag struct {
	Flag  string `yaml:"flag" json:"flag"`
	Value string `yaml:"value" json:"value"` // empty where the flag takes none
	Why   string `yaml:"why" json:"why"`
}

// Variable is one of the environment's. In its value {plugin} stands for the folder of the plugin and {socket} for the sidecar's socket.
type Variable struct {
	Name  string `yaml:"name" json:"name"`
	Value string `yaml:"value" json:"value"`
	Why   string `yaml:"why" json:"why"`
}

// Avoid is a setting that defeats the gateway.
type Avoid struct {
	Setting string `yaml:"setting" json:"setting"`
	Why     string `yaml:"why" json:"why"`
}

// Model is one that was seen to work.
type Model struct {
	Name   string `yaml:"name" json:"name"`
	Device string `yaml:"device" json:"device"`
	Runner string `yaml:"runner" json:"runner"`
	Note   string `yaml:"note" json:"note"`
}

// Places are what stands for {plugin} and {socket} in a profile: the folder of qr_vllm.py and the path of the sidecar's socket.
type Places struct{ Plugin, Socket string }

// All returns every profile by name, for reading only.
func All() ([]Profile, error) { return builtIn() }

// builtIn reads the files once: they are part of the program.
var builtIn = sync.OnceValues(func() ([]Profile, error) { return read(files) })

// Find returns the profile called name. The error lists what there is.
func Find(name string) (Profile, error) {
	all, err := All()
	if err != nil {
		return Profile{}, err
	}
	at := slices.IndexFunc(all, func(p Profile) bool { return p.Name == name })
	if at < 0 {
		return Profile{}, fmt.Errorf("find profile: %q is none; there are %s", name, strings.Join(names(all), ", "))
	}
	return all[at], nil
}

func names(all []Profile) []string {
	out := make([]string, len(all))
	for i, p := range all {
		out[i] = p.Name
	}
	return out
}

// read returns the profiles of a folder by name.
func read(from fs.FS) ([]Profile, error) {
	found, err := fs.Glob(from, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("read profiles: %w", err)
	}
	var all []Profile
	var errs []error
	for _, file := range found {
		data, err := fs.ReadFile(from, file)
		if err != nil {
			errs = append(errs, fmt.Errorf("read profile %s: %w", file, err))
			continue
		}
		p, err := Parse(data, strings.TrimSuffix(path.Base(file), ".yaml"))
		if err != nil {
			errs = append(errs, fmt.Errorf("read profile %s: %w", file, err))
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(p, q Profile) int { return strings.Compare(p.Name, q.Name) })
	return all, errors.Join(errs...)
}

// Parse reads the text of one file. name is the file's, without .yaml. Unknown keys, and what a profile can't be without, are errors.
func Parse(data []byte, name string) (Profile, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	var p Profile
	if err := dec.Decode(&p); err != nil {
		if errors.Is(err, io.EOF) {
			return Profile{}, errors.New("decode: the file is empty")
		}
		return Profile{}, fmt.Errorf("decode: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return Profile{}, errors.New("decode: more than one document; give each profile a file of its own")
	}
	return p, p.check(name)
}

// Args are the words that start the server for a model on a device, the program first.
func (p Profile) Args(model, device string) []string {
	args := append(slices.Clone(p.Serve.Command), model)
	for _, f := range slices.Concat(p.Serve.Flags, p.variant(device).Flags) {
		args = append(args, f.Flag)
		if f.Value != "" {
			args = append(args, f.Value)
		}
	}
	return args
}

// Environ is the server's environment on a device, as NAME=value, beside what it has anyway.
func (p Profile) Environ(device string, places Places) []string {
	replace := strings.NewReplacer("{plugin}", places.Plugin, "{socket}", places.Socket)
	var out []string
	for _, v := range slices.Concat(p.Serve.Environment, p.variant(device).Environment) {
		out = append(out, v.Name+"="+replace.Replace(v.Value))
	}
	return out
}

func (p Profile) variant(device string) Variant {
	at := slices.IndexFunc(p.Variants, func(v Variant) bool { return v.Device == device })
	if at < 0 {
		return Variant{}
	}
	return p.Variants[at]
}
