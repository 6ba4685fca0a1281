package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"qr-gateway/entropy/grpc/address"
	"qr-gateway/entropy/grpc/certs"
	"qr-gateway/entropy/grpc/secret"
)

// Config is where and how a gateway takes links.
type Config struct {
	Gateway string `mapstructure:"-"`      // name, for the workers' logs
	Version string `mapstructure:"-"`      // of the program
	Listen  string `mapstructure:"listen"` // host:port, or unix:///path
	// Advertise is the address that workers reach the gateway by, where it isn't Listen: jobs carry it.
	Advertise string `mapstructure:"advertise"`

	Secret     string `mapstructure:"-"`           // that workers must show; or it is in a file
	SecretFile string `mapstructure:"secret_file"` //
	Insecure   bool   `mapstructure:"insecure"`    // listen beyond this machine without TLS

	TLSCert     string `mapstructure:"tls_cert"`      // PEM file; empty: no TLS
	TLSKey      string `mapstructure:"tls_key"`       // PEM file of its key
	TLSClientCA string `mapstructure:"tls_client_ca"` // PEM file: workers must show a certificate signed by one of these

	MaxMessage  int           `mapstructure:"max_message"`  // bytes of one frame or request
	Silence     time.Duration `mapstructure:"silence"`      // after which a worker that says nothing counts as gone
	Handshake   time.Duration `mapstructure:"handshake"`    // for a worker to say who it is
	Wait        time.Duration `mapstructure:"prepare_wait"` // of a request, for a worker that hosts its model
	PrepareTry  time.Duration `mapstructure:"prepare_try"`  // for one worker to prepare a request, while there is another
	MaxPrepares int           `mapstructure:"max_prepares"` // requests that one worker prepares at once
}

// DefaultConfig lacks Listen and the secret.
func DefaultConfig() Config {
	return Config{
		Gateway: "gateway", MaxMessage: 16 << 20, Silence: 3 * time.Second, Handshake: 5 * time.Second,
		Wait: 5 * time.Second, PrepareTry: 10 * time.Second, MaxPrepares: 64,
	}
}

// Limits of both configurations.
const (
	maxMessage   = 256 << 20
	minSilence   = 100 * time.Millisecond
	maxNameBytes = 128
)

// findings collects what is wrong.
type findings []error

func (f *findings) check(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// Validate says what is wrong. It reads no files.
func (c *Config) Validate() error {
	var f findings
	a, err := address.Parse(c.Listen)
	if err != nil {
		f = append(f, fmt.Errorf("listen: %w", err))
	}
	f.check(goodName(c.Gateway), "name of the gateway is %q; it takes 1 to %d visible characters", c.Gateway, maxNameBytes)
	f.check(err != nil || a.Local() || c.TLSCert != "" || c.Insecure,
		"listen %s reaches beyond this machine, and prompts and answers would cross the network in the clear: set tls_cert and tls_key, or insecure", c.Listen)
	f.check(err != nil || a.Network == "unix" || c.hasSecret() || c.TLSClientCA != "",
		"listen %s: anybody who can connect could take part as a worker: set a secret or tls_client_ca", c.Listen)
	f.advertise(a, c.Advertise)
	f.check((c.TLSCert == "") == (c.TLSKey == ""), "tls_cert and tls_key belong together: one of them is not given")
	f.check(c.TLSClientCA == "" || c.TLSCert != "", "tls_client_ca needs tls_cert and tls_key")
	f.secret(c.Secret, c.SecretFile)
	f.size(c.MaxMessage)
	f.check(c.Silence >= minSilence, "silence is %v; it takes %v or more", c.Silence, minSilence)
	f.check(c.Handshake > 0 && c.PrepareTry > 0, "handshake is %v, prepare_try %v; they take more than 0", c.Handshake, c.PrepareTry)
	f.check(c.Wait >= 0, "prepare_wait is %v; it takes 0 or more", c.Wait)
	f.check(c.MaxPrepares >= 1, "max_prepares is %d; it takes 1 or more", c.MaxPrepares)
	return errors.Join(f...)
}

// owner is the address that workers dial, once a listener is bound.
func (c *Config) owner(bound net.Addr) string {
	a, err := address.Parse(c.Listen)
	t, tcp := bound.(*net.TCPAddr)
	switch {
	case c.Advertise != "":
		return c.Advertise
	case err != nil || !tcp:
		return c.Listen
	}
	return net.JoinHostPort(a.Host, strconv.Itoa(t.Port))
}

func (c *Config) hasSecret() bool { return c.Secret != "" || c.SecretFile != "" }

func (c *Config) files() certs.Files {
	return certs.Files{CA: c.TLSClientCA, Cert: c.TLSCert, Key: c.TLSKey}
}

// advertise checks that workers can be told an address to dial.
func (f *findings) advertise(listen address.Address, other string) {
	if other == "" {
		ip, err := netip.ParseAddr(listen.Host)
		everywhere := listen.Network == "tcp" && (listen.Host == "" || err == nil && ip.IsUnspecified())
		f.check(!everywhere, "listen %s names no host that workers could dial: set advertise to host:port as they reach it", listen.Text)
		return
	}
	a, err := address.Parse(other)
	if err == nil {
		err = a.CheckDial()
	}
	if err != nil {
		*f = append(*f, fmt.Errorf("advertise: %w", err))
	}
}

func (f *findings) secret(text, file string) {
	if err := secret.CheckGiven(text, file); err != nil {
		*f = append(*f, err)
	}
}

func (f *findings) size(n int) {
	f.check(n >= partSize && n <= maxMessage, "max_message is %d; it takes %d to %d bytes", n, partSize, maxMessage)
}

// goodName reports a name that can stand in logs and tables.
func goodName(name string) bool {
	return name != "" && len(name) <= maxNameBytes && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f })
}
