package grpc

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc/address"
	"qr-gateway/entropy/grpc/breaker"
	"qr-gateway/entropy/regular"
)

// How a server is called.
const (
	ModeUnary  = "unary"            // one call a draw
	ModeServer = "server_streaming" // one stream a draw
	ModeBidi   = "bidi_streaming"   // one stream for all draws
)

// What a server sends back with its bytes.
const (
	EchoSequence = "sequence" // the number of the request
	EchoNone     = "none"     // nothing: only one request is under way on a stream, and any that is given up ends it
)

// Secret is text that shows itself nowhere.
type Secret string

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(set)"
}

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return s.String() }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Config says where an entropy server is and how to talk to it.
type Config struct {
	Address string `mapstructure:"address"` // host:port, [IPv6]:port, unix:///path or unix-abstract:name
	Mode    string `mapstructure:"mode"`    // unary, server_streaming or bidi_streaming (bidi)

	Schema string `mapstructure:"schema"`             // protocol by name: qr_entropy or qrng; empty: by method_path, else qr_entropy. What follows changes it
	Method string `mapstructure:"method_path"`        // /package.Service/Method of unary calls; empty: the schema's
	Stream string `mapstructure:"stream_method_path"` // the same of streams
	Echo   string `mapstructure:"echo"`               // sequence or none; empty: the schema's
	Fields Fields `mapstructure:",squash"`
	// Payload is the form of the bytes: raw, hex, base64, bits (characters 0 and 1, highest bit first) or packed (numbers).
	Payload string `mapstructure:"payload"`

	NumberMethod string `mapstructure:"draw_method_path"`        // of numbers that the server integrates; empty: it makes none
	NumberStream string `mapstructure:"draw_stream_method_path"` // the same in a stream

	APIKey           Secret `mapstructure:"api_key"`            // sent with each call
	APIKeyFile       string `mapstructure:"api_key_file"`       // file that holds it
	APIKeyHeader     string `mapstructure:"api_key_header"`     // metadata name
	AllowInsecureKey bool   `mapstructure:"allow_insecure_key"` // send the key unencrypted to another machine

	TLS           bool   `mapstructure:"tls"`             // encrypt; implied by the next four
	TLSCA         string `mapstructure:"tls_ca"`          // PEM file of authorities; empty: the system's
	TLSCert       string `mapstructure:"tls_cert"`        // PEM file of our own certificate
	TLSKey        string `mapstructure:"tls_key"`         // PEM file of its key
	TLSServerName string `mapstructure:"tls_server_name"` // name to be checked; empty: the host of the address

	Retries     int           `mapstructure:"retries"`      // further attempts of a draw whose connection broke before anything came
	MaxDraw     int           `mapstructure:"max_draw"`     // bytes of one request; a larger draw takes several; 0 is no limit
	MaxInFlight int           `mapstructure:"max_inflight"` // requests under way at once
	QuotaHold   time.Duration `mapstructure:"quota_hold"`   // not asked for so long after a used-up quota, unless the server says how long

	Class entropy.Class `mapstructure:"class"` // freshness as declared: jit, buffer, unknown, pool or replay
	Rate  float64       `mapstructure:"rate"`  // bytes per second that the device makes: a draw gets at least twice the time; 0 is unknown

	Breaker breaker.Config `mapstructure:",squash"`
}

// DefaultConfig returns the published protocol, called on one stream, at a local server.
func DefaultConfig() Config {
	return Config{
		Address: "localhost:50051", Mode: ModeBidi, Payload: "raw",
		NumberMethod: "/qr_purity.PurityService/GetDraw", NumberStream: "/qr_purity.PurityService/StreamDraws",
		APIKeyHeader: "api-key", Retries: 2, MaxInFlight: 256, QuotaHold: time.Second,
		Class: entropy.ClassUnknown, Breaker: breaker.DefaultConfig(),
	}
}

// resolve fills in what the schema says.
func (c Config) resolve() Config {
	if c.Mode == "bidi" {
		c.Mode = ModeBidi
	}
	c.APIKeyHeader = strings.ToLower(c.APIKeyHeader)
	c.Schema = cmp.Or(c.Schema, schemaBy(c.Method))
	s, err := schemaOf(c.Schema)
	if err != nil {
		return c
	}
	c.Fields = c.Fields.over(s.fields)
	c.Echo = cmp.Or(c.Echo, s.echo)
	if c.Echo == EchoNone {
		c.Fields.Echo = 0
	}
	c.Method, c.Stream = cmp.Or(c.Method, s.method), cmp.Or(c.Stream, s.stream)
	return c
}

// Limits of a configuration.
const (
	maxDraw     = 64 << 20 // bytes of one draw
	maxInFlight = 1024     // so many requests fit into a stream's send window, so that sending never blocks
	maxRetries  = 10
	maxKeyFile  = 64 << 10 // bytes
)

// Validate says what is wrong. It reads no files.
func (c Config) Validate() error {
	c = c.resolve()
	return errors.Join(c.validateCall(), c.validateKey(), c.validateLimits())
}

// findings collects what is wrong.
type findings []error

func (f *findings) check(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

func (c *Config) validateCall() error {
	_, unknown := schemaOf(c.Schema)
	if unknown != nil {
		return unknown
	}
	_, err := address.Parse(c.Address)
	f := findings{
		err, c.Fields.validate(c.Echo),
		oneOf("mode", c.Mode, ModeUnary, ModeServer, ModeBidi), oneOf("echo", c.Echo, EchoSequence, EchoNone),
		oneOf("payload", c.Payload, payloads...),
	}
	f.check(c.Class.Known(), "class %q: must be jit, buffer, unknown, pool or replay", c.Class)
	for _, m := range []struct{ key, path string }{
		{"method_path", c.Method}, {"stream_method_path", c.Stream}, {"draw_method_path", c.NumberMethod}, {"draw_stream_method_path", c.NumberStream},
	} {
		f.check(m.path == "" || goodMethod(m.path), "%s %q: must look like /package.Service/Method", m.key, m.path)
	}
	f.check(c.Mode != ModeUnary || c.Method != "", "mode unary needs method_path")
	f.check(c.Mode == ModeUnary || c.Stream != "", "mode %s needs stream_method_path, which schema %s does not have: use mode unary", c.Mode, c.Schema)
	return errors.Join(f...)
}

func (c *Config) validateKey() error {
	var f findings
	f.check(c.APIKey == "" || c.APIKeyFile == "", "api_key and api_key_file are both given")
	f.check(goodHeader(c.APIKeyHeader), "api_key_header %q: must be a metadata name, not one of gRPC's own", c.APIKeyHeader)
	a, err := address.Parse(c.Address)
	if err == nil && c.hasKey() && !c.secure() && !a.Local() {
		f.check(c.AllowInsecureKey, "the API key would go unencrypted to %s: turn tls on, use a Unix socket, or set allow_insecure_key", c.Address)
	}
	return errors.Join(f...)
}

func (c *Config) validateLimits() error {
	f := findings{c.Breaker.Validate()}
	f.check(c.Retries >= 0 && c.Retries <= maxRetries, "retries %d: must lie between 0 and %d", c.Retries, maxRetries)
	f.check(c.MaxDraw >= 0 && c.MaxDraw <= maxDraw, "max_draw %d: must lie between 0 and %d bytes", c.MaxDraw, maxDraw)
	f.check(c.MaxInFlight >= 1 && c.MaxInFlight <= maxInFlight, "max_inflight %d: must lie between 1 and %d", c.MaxInFlight, maxInFlight)
	f.check(c.QuotaHold >= 0 && c.QuotaHold <= time.Hour, "quota_hold %v: must lie between 0 and 1h", c.QuotaHold)
	f.check(c.Rate >= 0 && c.Rate < 1e12, "rate %v: must lie between 0 and 1e12 bytes per second", c.Rate)
	return errors.Join(f...)
}

func (c *Config) hasKey() bool { return c.APIKey != "" || c.APIKeyFile != "" }

func (c *Config) secure() bool {
	return c.TLS || c.TLSCA != "" || c.TLSCert != "" || c.TLSKey != "" || c.TLSServerName != ""
}

// key reads the API key.
func (c *Config) key() (string, error) {
	if c.APIKeyFile == "" {
		return string(c.APIKey), goodKey(string(c.APIKey))
	}
	text, err := regular.Read(c.APIKeyFile, maxKeyFile)
	if err != nil {
		return "", fmt.Errorf("read api_key_file: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", fmt.Errorf("api_key_file %s is empty", c.APIKeyFile)
	}
	return key, goodKey(key)
}

// goodKey never shows the key.
func goodKey(key string) error {
	for _, r := range key {
		if r < ' ' || r > '~' {
			return errors.New("the API key has characters that can't be sent: it must be printable ASCII in one line")
		}
	}
	return nil
}

func goodMethod(path string) bool {
	parts := strings.Split(path, "/")
	return len(parts) == 3 && parts[0] == "" && parts[1] != "" && parts[2] != "" && !strings.ContainsAny(path, " \t\r\n?#")
}

func goodHeader(name string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	return name != "" && strings.Trim(name, allowed) == "" && !strings.HasPrefix(name, "grpc-") && !strings.HasSuffix(name, "-bin") && name != "content-type" && name != "te"
}
