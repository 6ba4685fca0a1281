package http

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	stdhttp "net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"qr-gateway/entropy"
	"qr-gateway/entropy/regular"
)

const (
	maxDraw    = 16 << 20 // bytes of one draw
	maxPerMin  = 100_000
	maxKeyFile = 64 << 10 // bytes
)

// Config says which service to ask and how.
type Config struct {
	API string `mapstructure:"api"` // the interface: anu, anu_legacy, openentropy, quantis, lfd, bytes or json
	URL string `mapstructure:"url"` // of the service; empty: the interface's own. For bytes and json it holds {bytes} or {count}

	Source       string `mapstructure:"source"`       // openentropy: the one source to measure; empty: its pool
	Conditioning string `mapstructure:"conditioning"` // openentropy: raw, vonneumann or sha256

	Method      string `mapstructure:"method"`       // bytes and json: GET or POST
	Body        string `mapstructure:"body"`         // of a POST; it may hold {bytes} or {count}
	Unit        int    `mapstructure:"unit"`         // bytes and json: bytes that one {count} stands for
	Field       string `mapstructure:"field"`        // json: where the bytes are: names and indexes between dots, * for each of a list
	Encoding    string `mapstructure:"encoding"`     // json: uint8, uint16le, hex or base64; a list of texts is put together
	Success     string `mapstructure:"success"`      // json: a field that must be true; empty: none
	ContentType string `mapstructure:"content_type"` // of a good answer; empty: what the interface sends

	APIKeyEnv        string `mapstructure:"api_key_env"`        // environment variable that holds the key
	APIKeyFile       string `mapstructure:"api_key_file"`       // file that holds it
	APIKeyHeader     string `mapstructure:"api_key_header"`     // header it is sent in; empty: the interface's
	APIKeyPrefix     string `mapstructure:"api_key_prefix"`     // what stands before it, such as "Bearer "
	AllowInsecureKey bool   `mapstructure:"allow_insecure_key"` // send the key unencrypted to another machine

	TLSCA         string `mapstructure:"tls_ca"`          // PEM file of authorities; empty: the system's
	TLSCert       string `mapstructure:"tls_cert"`        // PEM file of our own certificate
	TLSKey        string `mapstructure:"tls_key"`         // PEM file of its key
	TLSServerName string `mapstructure:"tls_server_name"` // name to be checked; empty: the host of the URL

	Class             entropy.Class `mapstructure:"class"`               // empty: the interface's
	MaxDraw           int           `mapstructure:"max_draw"`            // bytes of one call; 0: the interface's limit; longer draws take several
	Timeout           time.Duration `mapstructure:"timeout"`             // of one call
	RequestsPerMinute int           `mapstructure:"requests_per_minute"` // more calls are not made; 0: the interface's limit; -1: none
	QuotaHold         time.Duration `mapstructure:"quota_hold"`          // not asked for so long after a used-up quota, unless the service says how long
}

// DefaultConfig returns the defaults. The interface is still to be set.
func DefaultConfig() Config {
	return Config{Conditioning: "raw", Method: stdhttp.MethodGet, Unit: 1, Encoding: encodingUint8, Timeout: 10 * time.Second, QuotaHold: time.Minute}
}

// findings collects what is wrong.
type findings []error

func (f *findings) check(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// Validate says what is wrong. It reads no files.
func (c Config) Validate() error {
	api, ok := find(c.API)
	if !ok {
		return fmt.Errorf("api is %q; it must be one of %s", c.API, strings.Join(names(), ", "))
	}
	c.URL = cmp.Or(c.URL, api.url)
	return errors.Join(c.validateURL(), c.validateAPI(api), c.validateKey(api), c.validateLimits())
}

func (c Config) validateURL() error {
	if c.URL == "" {
		return fmt.Errorf("url is empty; interface %s has no address of its own", c.API)
	}
	u, err := url.Parse(fill(c.URL, 1, 1))
	if err != nil {
		return errors.New("url can't be read; it must be http(s)://host[:port]/path") // its text may hold a password
	}
	var f findings
	f.check(u.Scheme == "http" || u.Scheme == "https", "url has scheme %q; it must be http or https", u.Scheme)
	f.check(u.Hostname() != "", "url has no host")
	f.check(u.User == nil, "url holds a user or password; use api_key_env or api_key_file")
	f.check(u.Fragment == "", "url has a fragment (#), which is never sent")
	return errors.Join(f...)
}

func (c Config) validateAPI(api api) error {
	var f findings
	general := api.general
	f.check(general || c.Method == stdhttp.MethodGet && c.Body == "" && c.Unit == 1 && c.Field == "" && c.Success == "",
		"method, body, unit, field and success are for api bytes and json")
	f.check(c.Method == stdhttp.MethodGet || c.Method == stdhttp.MethodPost, "method is %q; it must be GET or POST", c.Method)
	f.check(c.Body == "" || c.Method == stdhttp.MethodPost, "body needs method POST")
	f.check(!general || holdsCount(c.URL+c.Body), "neither url nor body holds {bytes} or {count}: the service must be told how much to send")
	f.check(c.API != "json" || goodPath(c.Field), "field is %q; it must be names, indexes or * between dots", c.Field)
	f.check(c.Success == "" || goodPath(c.Success), "success is %q; it must be names or indexes between dots", c.Success)
	f.check(slices.Contains(encodings(), c.Encoding), "encoding is %q; it must be one of %s", c.Encoding, strings.Join(encodings(), ", "))
	f.check(c.Unit >= 1 && c.Unit <= maxDraw, "unit is %d; it must be 1 to %d bytes", c.Unit, maxDraw)
	isOpen := c.API == "openentropy"
	f.check(isOpen || c.Source == "", "source is for api openentropy")
	f.check(!isOpen || slices.Contains([]string{"raw", "vonneumann", "sha256"}, c.Conditioning), "conditioning is %q; it must be raw, vonneumann or sha256", c.Conditioning)
	f.check(c.Class == "" || c.Class.Known(), "class is %q; it must be jit, buffer, unknown, pool or replay", c.Class)
	f.check(!isOpen || c.Class != entropy.ClassJIT || c.measures(), "class jit needs one source and conditioning raw: anything else comes from a pool")
	return errors.Join(f...)
}

// measures reports whether an OpenEntropy server makes the bytes when it is asked.
func (c Config) measures() bool { return c.Source != "" && c.Conditioning == "raw" }

func (c Config) validateKey(api api) error {
	var f findings
	f.check(c.APIKeyEnv == "" || c.APIKeyFile == "", "api_key_env and api_key_file are both given")
	header := cmp.Or(c.APIKeyHeader, api.header)
	if c.hasKey() {
		f.check(httpguts.ValidHeaderFieldName(header), "api_key_header is %q; it must be the name of a header", header)
		f.check(httpguts.ValidHeaderFieldValue(c.APIKeyPrefix), "api_key_prefix can't stand in a header")
		u, err := url.Parse(fill(c.URL, 1, 1))
		f.check(err != nil || u.Scheme == "https" || isLocal(u.Hostname()) || c.AllowInsecureKey,
			"the API key would go unencrypted to another machine: use https, or set allow_insecure_key")
	}
	f.check(c.hasKey() || !api.needsKey, "interface %s needs a key: set api_key_env or api_key_file", c.API)
	return errors.Join(f...)
}

func (c Config) hasKey() bool { return c.APIKeyEnv != "" || c.APIKeyFile != "" }

func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (c Config) validateLimits() error {
	var f findings
	f.check(c.MaxDraw >= 0 && c.MaxDraw <= maxDraw, "max_draw is %d; it must be 0 to %d bytes", c.MaxDraw, maxDraw)
	f.check(c.Timeout > 0 && c.Timeout <= time.Hour, "timeout is %v; it must be over 0 and at most 1h", c.Timeout)
	f.check(c.RequestsPerMinute >= -1 && c.RequestsPerMinute <= maxPerMin, "requests_per_minute is %d; it must be -1 to %d", c.RequestsPerMinute, maxPerMin)
	f.check(c.QuotaHold >= 0 && c.QuotaHold <= time.Hour, "quota_hold is %v; it must be 0 to 1h", c.QuotaHold)
	return errors.Join(f...)
}

// secret is a key. It shows itself nowhere.
type secret string

// String implements fmt.Stringer.
func (s secret) String() string { return "(set)" }

// GoString implements fmt.GoStringer.
func (s secret) GoString() string { return "(set)" }

// LogValue implements slog.LogValuer.
func (s secret) LogValue() slog.Value { return slog.StringValue("(set)") }

// key reads the key.
func (c Config) key() (secret, error) {
	var text, from string
	switch {
	case c.APIKeyEnv != "":
		text, from = os.Getenv(c.APIKeyEnv), "environment variable "+c.APIKeyEnv
	case c.APIKeyFile != "":
		data, err := regular.Read(c.APIKeyFile, maxKeyFile)
		if err != nil {
			return "", fmt.Errorf("read api_key_file: %w", err)
		}
		text, from = string(data), "file "+c.APIKeyFile
	default:
		return "", nil
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return "", fmt.Errorf("%s holds no API key", from)
	}
	if !httpguts.ValidHeaderFieldValue(text) {
		return "", fmt.Errorf("the API key in %s can't stand in a header", from)
	}
	return secret(text), nil
}
