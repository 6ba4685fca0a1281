package server

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"qr-gateway/entropy/grpc/address"
	"qr-gateway/entropy/grpc/certs"
	"qr-gateway/entropy/regular"
)

// Config says where and how a source is served.
type Config struct {
	Listen     []string    `mapstructure:"listen"`      // host:port, [IPv6]:port, unix:///path or unix-abstract:name
	SocketMode fs.FileMode `mapstructure:"socket_mode"` // of Unix sockets

	APIKeyFile   string   `mapstructure:"api_key_file"`   // file with one key per line; lines with # are comments
	APIKeys      []string `mapstructure:"-"`              // keys from elsewhere
	APIKeyHeader string   `mapstructure:"api_key_header"` // metadata name
	AllowPublic  bool     `mapstructure:"allow_public"`   // listen beyond this machine without a key or client certificates

	TLSCert     string `mapstructure:"tls_cert"`      // PEM file; empty: no TLS
	TLSKey      string `mapstructure:"tls_key"`       // PEM file of its key
	TLSClientCA string `mapstructure:"tls_client_ca"` // PEM file: callers must show a certificate signed by one of these

	MaxBytes    int           `mapstructure:"max_bytes"`    // of one request
	NumberBytes int           `mapstructure:"number_bytes"` // integrated for a number when the request names no size
	SourceID    string        `mapstructure:"source_id"`    // the name that numbers carry and may be asked by; empty: the source's
	Device      string        `mapstructure:"device"`       // device id of replies; empty: what the source says
	Reflection  bool          `mapstructure:"reflection"`   // tell callers the protocol
	Grace       time.Duration `mapstructure:"grace"`        // for requests under way when it is to stop

	Faults []Fault `mapstructure:"-"` // for tests: what it does wrong
}

// DefaultConfig returns the defaults; only Listen is missing.
func DefaultConfig() Config {
	return Config{SocketMode: 0o660, APIKeyHeader: "api-key", MaxBytes: 1 << 20, NumberBytes: 20480, Grace: 5 * time.Second}
}

// Limits of a configuration, in bytes.
const (
	maxBytes   = 64 << 20 // of one request
	maxKeyFile = 1 << 20
)

// Validate says what is wrong. It reads no files.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(c.Listen) > 0, "listen is empty: say for example unix:///run/qr-entropy/entropy.sock or localhost:50051")
	for _, l := range c.Listen {
		a, err := address.Parse(l)
		errs = append(errs, err)
		check(err != nil || a.Local() || c.guarded() || c.AllowPublic,
			"listen %s reaches beyond this machine, and anybody could take entropy: set an API key or a client CA, or allow_public", l)
	}
	check(c.SocketMode&^0o777 == 0 && c.SocketMode&0o600 == 0o600, "socket_mode %04o: must be permissions such as 0660, with the owner's", c.SocketMode)
	check(c.APIKeyHeader != "" && c.APIKeyHeader == strings.ToLower(c.APIKeyHeader), "api_key_header %q: must be a lower-case metadata name", c.APIKeyHeader)
	check((c.TLSCert == "") == (c.TLSKey == ""), "tls_cert and tls_key belong together: one of them is not given")
	check(c.TLSClientCA == "" || c.TLSCert != "", "tls_client_ca needs tls_cert and tls_key")
	check(c.MaxBytes >= 1 && c.MaxBytes <= maxBytes, "max_bytes %d: must lie between 1 and %d", c.MaxBytes, maxBytes)
	check(c.NumberBytes >= 1 && c.NumberBytes <= c.MaxBytes, "number_bytes %d: must lie between 1 and max_bytes %d", c.NumberBytes, c.MaxBytes)
	check(c.Grace >= 0 && c.Grace <= time.Hour, "grace %v: must lie between 0 and 1h", c.Grace)
	for _, f := range c.Faults {
		errs = append(errs, f.Validate())
	}
	return errors.Join(errs...)
}

// guarded reports whether callers have to show who they are.
func (c Config) guarded() bool {
	return c.APIKeyFile != "" || len(c.APIKeys) > 0 || c.TLSClientCA != ""
}

func (c Config) files() certs.Files {
	return certs.Files{CA: c.TLSClientCA, Cert: c.TLSCert, Key: c.TLSKey}
}

// keys reads the API keys; none means that nobody is asked for one.
func (c Config) keys() ([]string, error) {
	keys := c.APIKeys
	if c.APIKeyFile == "" {
		return keys, nil
	}
	text, err := regular.Read(c.APIKeyFile, maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("read api_key_file: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			keys = append(keys, line)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("api_key_file %s has no key in it", c.APIKeyFile)
	}
	return keys, nil
}
