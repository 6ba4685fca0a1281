// Package openentropy reads the noise of this or another machine by OpenEntropy: through its server, its command-line program or its Python
// package. Only raw bytes of one named source are measured on request; its pool, anything it conditions, and the pipe of its
// program hand out what was collected before. What comes back is one of our http or exec sources, with their concurrency.
package openentropy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/exec"
	"qr-gateway/entropy/http"
)

// The ways to it.
const (
	ViaServer = "server"
	ViaCLI    = "cli"
	ViaPython = "python"
)

// Config says where OpenEntropy is and what to read.
type Config struct {
	Via          string        `mapstructure:"via"`          // server, cli or python
	URL          string        `mapstructure:"url"`          // server: where it is; empty: http://127.0.0.1:8042
	Program      string        `mapstructure:"program"`      // cli: an absolute path or a name found in PATH
	Python       string        `mapstructure:"python"`       // python: the interpreter that has the package openentropy
	Source       string        `mapstructure:"source"`       // the noise source to read, such as clock_jitter; empty: its pool
	Conditioning string        `mapstructure:"conditioning"` // raw, vonneumann or sha256
	Timeout      time.Duration `mapstructure:"timeout"`      // of one request
}

// DefaultConfig reads raw bytes from a server on this machine. The noise source is still to be set.
func DefaultConfig() Config {
	return Config{Via: ViaServer, Program: "openentropy", Python: "python3", Conditioning: "raw", Timeout: 30 * time.Second}
}

// Validate says what is wrong.
func (c Config) Validate() error {
	switch {
	case !slices.Contains([]string{ViaServer, ViaCLI, ViaPython}, c.Via):
		return fmt.Errorf("via is %q; it must be server, cli or python", c.Via)
	case !slices.Contains([]string{"raw", "vonneumann", "sha256"}, c.Conditioning):
		return fmt.Errorf("conditioning is %q; it must be raw, vonneumann or sha256", c.Conditioning)
	case strings.HasPrefix(c.Source, "-") || strings.ContainsAny(c.Source, "\x00 "):
		return fmt.Errorf("source is %q; it must be the name of a noise source, as `openentropy scan` lists them", c.Source)
	case c.URL != "" && c.Via != ViaServer:
		return errors.New("url is for via server")
	}
	return nil
}

// Class is when the bytes come to be.
func (c Config) Class() entropy.Class {
	if c.Source != "" && c.Conditioning == "raw" && c.Via != ViaCLI {
		return entropy.ClassJIT
	}
	return entropy.ClassPool
}

// Opening is how long a source may take to open.
func (c Config) Opening() time.Duration {
	if e, err := c.program(); err == nil && c.Via == ViaPython {
		return e.Opening()
	}
	return 0
}

// Source is an open source.
type Source interface {
	entropy.Source
	entropy.Prober
	io.Closer
}

// Open opens the source on the way that the configuration says.
func Open(ctx context.Context, name string, cfg Config) (Source, error) {
	if err := cfg.Validate(); err != nil {
		return nil, &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "open OpenEntropy", Err: err}
	}
	if cfg.Via == ViaServer {
		return open(http.Open(ctx, name, cfg.server()))
	}
	program, err := cfg.program()
	if err != nil {
		return nil, &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "open OpenEntropy", Err: err}
	}
	return open(exec.Open(ctx, name, program, exec.Deps{}))
}

// open keeps a nil pointer from becoming a source.
func open[S Source](s S, err error) (Source, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c Config) server() http.Config {
	h := http.DefaultConfig()
	h.API, h.URL, h.Source, h.Conditioning, h.Timeout = "openentropy", c.URL, c.Source, c.Conditioning, c.Timeout
	h.Class = c.Class()
	return h
}

func (c Config) program() (exec.Config, error) {
	e := exec.DefaultConfig()
	e.Timeout, e.Class = c.Timeout, c.Class()
	if c.Via == ViaCLI {
		e.Framing = exec.FramingRaw
		e.Command = []string{cmp.Or(c.Program, "openentropy"), "stream", "--format", "raw", "--conditioning", c.Conditioning}
		if c.Source != "" {
			e.Command = append(e.Command, c.Source)
		}
		return e, nil
	}
	options, err := json.Marshal(map[string]string{"source": c.Source, "conditioning": c.Conditioning})
	if err != nil {
		return exec.Config{}, fmt.Errorf("write options: %w", err)
	}
	e.PythonClass, e.PythonConfig, e.Python = "qr_exec_source.openentropy:OpenEntropy", string(options), c.Python
	return e, nil
}
