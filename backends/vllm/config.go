package vllm

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"qr-gateway/backends/openai"
)

// Fail is what vLLM does with a token when it hears nothing of the sampler.
type Fail string

// What it may do.
const (
	FailStop   Fail = "stop"   // end the answer; it becomes an error
	FailNative Fail = "native" // choose the token itself, which is counted
)

// Mismatch is what becomes of an answer with a token that is another than was chosen.
type Mismatch string

// What may become of it.
const (
	MismatchError Mismatch = "error" // it ends with an error
	MismatchCount Mismatch = "count" // it goes on, and the token is counted
)

// Config is one served model and the vLLM server that has it. Start from [DefaultConfig].
type Config struct {
	Model         string            // served id
	Description   string            // shown in the model list
	URL           string            // of the server, http://host:8000 with or without /v1 behind it, or unix:/path/of.sock
	APIKey        string            // sent as a bearer token; empty: none
	APIKeyFile    string            // holds the key, in the place of APIKey; read again at every check
	UpstreamModel string            // the model's name there; empty: the served id
	Headers       map[string]string // sent with every request
	Context       int               // tokens of a request; 0: what the server says
	Workers       int               // requests at once; it is for whoever runs them to keep to it
	Timeouts      openai.Timeouts
	Health        openai.Health // its load is read with every check
	Fail          Fail
	Mismatch      Mismatch      // empty: error with FailStop, count with FailNative
	Probe         bool          // find out with a token of a completion whether it can sample; else that is taken for granted
	ChoiceWait    time.Duration // for the choice of a token that is there
}

// DefaultConfig lacks the model and the address.
func DefaultConfig() Config {
	c := openai.DefaultConfig()
	c.Health.Interval = time.Second // load ages quickly
	return Config{Workers: 64, Timeouts: c.Timeouts, Health: c.Health, Fail: FailStop, Probe: true, ChoiceWait: time.Second}
}

// Validate reports everything that can't be; each error is an *openai.FieldError.
func (c Config) Validate() error {
	errs := []error{c.checkURL(), c.upstream().Validate()}
	if c.Fail != FailStop && c.Fail != FailNative {
		errs = append(errs, wrong("fail", "is %q; it takes %s or %s", c.Fail, FailStop, FailNative))
	}
	if c.Mismatch != "" && c.Mismatch != MismatchError && c.Mismatch != MismatchCount {
		errs = append(errs, wrong("mismatch", "is %q; it takes %s or %s", c.Mismatch, MismatchError, MismatchCount))
	}
	if c.ChoiceWait <= 0 {
		errs = append(errs, wrong("choice_wait", "is %s; it takes more than 0", c.ChoiceWait))
	}
	if c.Workers < 1 {
		errs = append(errs, wrong("workers", "is %d; it takes 1 or more", c.Workers))
	}
	return errors.Join(errs...)
}

func wrong(field, format string, args ...any) error {
	return &openai.FieldError{Field: field, Message: fmt.Sprintf(format, args...)}
}

const (
	socketPrefix = "unix:"
	socketLimit  = 107 // bytes of a path that the system takes
	exampleURL   = "it takes an address such as http://127.0.0.1:8000 or unix:/run/vllm.sock"
)

// checkURL checks what upstream makes another address of, or has another example for.
func (c Config) checkURL() error {
	path, socket := c.socket()
	switch {
	case c.URL == "":
		return wrong("url", "is missing; %s", exampleURL)
	case socket && !strings.HasPrefix(path, "/"):
		return wrong("url", "is %q, and the path of a socket begins with /; %s", c.URL, exampleURL)
	case socket && len(path) > socketLimit:
		return wrong("url", "has a path of %d bytes; a socket's has at most %d", len(path), socketLimit)
	}
	return nil
}

// socket is the path in an address of a Unix socket, unix:/path or unix:///path.
func (c Config) socket() (path string, ok bool) {
	path, ok = strings.CutPrefix(c.URL, socketPrefix)
	return strings.TrimPrefix(path, "//"), ok
}

// upstream is the part that any server with OpenAI's API has.
func (c Config) upstream() openai.Config {
	u := openai.DefaultConfig()
	u.Model, u.Description, u.Context, u.Workers = c.Model, c.Description, c.Context, c.Workers
	u.APIKey, u.APIKeyFile, u.UpstreamModel, u.Headers = c.APIKey, c.APIKeyFile, c.UpstreamModel, c.Headers
	u.Timeouts, u.Health = c.Timeouts, c.Health
	if path, ok := c.socket(); ok {
		u.Socket, u.URL = path, "http://localhost/v1"
		return u
	}
	u.URL = strings.TrimSuffix(strings.TrimRight(c.URL, "/"), "/v1") + "/v1"
	if c.URL == "" {
		u.URL = "http://localhost/v1" // what is missing is said once
	}
	return u
}

// strict says that a token that is another than was chosen ends the answer.
func (c Config) strict() bool {
	if c.Mismatch != "" {
		return c.Mismatch == MismatchError
	}
	return c.Fail == FailStop
}

// LogValue keeps what is secret out of logs.
func (c Config) LogValue() slog.Value { return c.upstream().LogValue() }
