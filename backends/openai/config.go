package openai

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Config is one served model and the server that has it. Start from [DefaultConfig].
type Config struct {
	Model         string            // served id
	Description   string            // shown in the model list
	URL           string            // address below which chat/completions and models are, e.g. http://127.0.0.1:8081/v1
	Socket        string            // path of a Unix socket that URL is reached over; empty: none
	APIKey        string            // sent as a bearer token; empty: none
	APIKeyFile    string            // holds the key, in the place of APIKey; read again at every check
	UpstreamModel string            // the model's name there; empty: the served id
	Headers       map[string]string // sent with every request
	Context       int               // tokens of a request; 0: what the server says, if it does
	Workers       int               // requests at once; it is for whoever runs them to keep to it
	PassParams    bool              // qr_ parameters go on: the server is another qr-gateway
	Timeouts      Timeouts
	Health        Health
}

// Timeouts bound the parts of a request. All are above 0.
type Timeouts struct {
	Connect   time.Duration // until there is a connection
	FirstByte time.Duration // from there to the first byte of a stream; a whole reply comes only when the answer is complete
	Idle      time.Duration // between bytes, from then on
	Total     time.Duration // of all together
}

// Health is how the server is looked after.
type Health struct {
	Interval time.Duration // between checks of a server that is well
	Retry    time.Duration // between checks of one that is not; also the least time between two
	Timeout  time.Duration // of one check
}

// DefaultConfig lacks the model and the address.
func DefaultConfig() Config {
	return Config{
		Workers:  4,
		Timeouts: Timeouts{Connect: 5 * time.Second, FirstByte: 2 * time.Minute, Idle: time.Minute, Total: 30 * time.Minute},
		Health:   Health{Interval: 10 * time.Second, Retry: time.Second, Timeout: 5 * time.Second},
	}
}

// LogValue keeps what is secret out of logs.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("model", c.Model), slog.String("url", c.URL), slog.String("upstream_model", c.upstreamModel()))
}

func (c Config) upstreamModel() string {
	if c.UpstreamModel != "" {
		return c.UpstreamModel
	}
	return c.Model
}

// FieldError is a value that can't be.
type FieldError struct {
	Field   string // as in a configuration file
	Message string // what is wrong, and what it takes; it shows no key
}

func (e *FieldError) Error() string { return e.Field + " " + e.Message }

func wrong(field, format string, args ...any) error {
	return &FieldError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// Validate reports everything that can't be; each error is a *FieldError.
func (c Config) Validate() error {
	errs := append([]error{c.checkURL(), c.checkKey()}, c.checkHeaders()...)
	if c.Model == "" {
		errs = append(errs, wrong("id", "is missing"))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"timeouts.connect", c.Timeouts.Connect},
		{"timeouts.first_byte", c.Timeouts.FirstByte},
		{"timeouts.idle", c.Timeouts.Idle},
		{"timeouts.total", c.Timeouts.Total},
		{"health.interval", c.Health.Interval},
		{"health.retry", c.Health.Retry},
		{"health.timeout", c.Health.Timeout},
	} {
		if d.value <= 0 {
			errs = append(errs, wrong(d.name, "is %s; it takes more than 0", d.value))
		}
	}
	return errors.Join(errs...)
}

const exampleURL = "it takes an address such as http://127.0.0.1:8081/v1"

func (c Config) checkURL() error {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil: // its text would show the address whole
		return wrong("url", "can't be read; %s", exampleURL)
	case c.URL == "":
		return wrong("url", "is missing; %s", exampleURL)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return wrong("url", "is %q; %s", u.Redacted(), exampleURL)
	case u.User != nil:
		return wrong("url", "has a user in it; put the key into api_key or api_key_file")
	case u.Fragment != "":
		return wrong("url", "is %s: no server gets what is behind #; leave it out", u.Redacted())
	}
	return nil
}

func (c Config) checkKey() error {
	if c.APIKey != "" && c.APIKeyFile != "" {
		return wrong("api_key_file", "is given beside api_key; give one of them")
	}
	return checkKey(c.APIKey, "api_key")
}

// checkKey never shows the key.
func checkKey(key, from string) error {
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return wrong(from, "holds a key with spaces, line breaks or other characters that no key has")
	}
	return nil
}

// keyOf reads the key from wherever it is.
func (c Config) keyOf() (string, error) {
	if c.APIKeyFile == "" {
		return c.APIKey, nil
	}
	data, err := os.ReadFile(c.APIKeyFile)
	if err != nil {
		return "", fmt.Errorf("read api_key_file: %w", err)
	}
	key := strings.TrimSpace(string(data))
	if key == "" {
		return "", fmt.Errorf("read api_key_file: %s is empty; it takes the key and nothing else", c.APIKeyFile)
	}
	return key, checkKey(key, "api_key_file")
}

// reserved are the headers that are not for a configuration to set.
var reserved = []string{"Connection", "Content-Encoding", "Content-Length", "Content-Type", "Host", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func (c Config) checkHeaders() []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		switch canonical := http.CanonicalHeaderKey(name); {
		case !httpguts.ValidHeaderFieldName(name):
			errs = append(errs, wrong("headers", "has %q, which is no name of a header", name))
		case slices.Contains(reserved, canonical):
			errs = append(errs, wrong("headers", "has %s, which the gateway sets itself; leave it out", canonical))
		case !httpguts.ValidHeaderFieldValue(c.Headers[name]):
			errs = append(errs, wrong("headers", "has a value of %s with characters that no header can have", canonical))
		case canonical == "Authorization" && (c.APIKey != "" || c.APIKeyFile != ""):
			errs = append(errs, wrong("headers", "has Authorization beside a key; give one of them"))
		}
	}
	return errs
}
