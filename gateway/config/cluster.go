package config

import (
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"qr-gateway/gateway/link"
)

// Redis is the server on which machines share a queue.
type Redis struct {
	URL          string `mapstructure:"url"`           // redis://host:port/db and its like; empty: the queue is in this process
	PasswordFile string `mapstructure:"password_file"` // holds the password; in the file, relative to the file's folder
	Name         string `mapstructure:"name"`          // of the queue: those of different names know nothing of each other
	Tokens       string `mapstructure:"tokens"`        // link or log: how answers come from workers on other machines
}

// Ways of answers from workers on other machines.
const (
	TokensLink = "link" // straight, by a link to their gateway
	TokensLog  = "log"  // through the server of the queue; workers need not reach gateways
)

// Link is where a gateway takes the links of workers on other machines.
type Link struct {
	Listen      string `mapstructure:"listen"`    // host:port or unix:///path; empty: no other machine's workers take part
	Advertise   string `mapstructure:"advertise"` // address that workers dial, where it isn't listen
	SecretFile  string `mapstructure:"secret_file"`
	TLSCert     string `mapstructure:"tls_cert"` // files are relative to the file's folder, in the file
	TLSKey      string `mapstructure:"tls_key"`
	TLSClientCA string `mapstructure:"tls_client_ca"` // workers must show a certificate that it signed
	Insecure    bool   `mapstructure:"insecure"`      // listen beyond this machine without TLS
}

// Worker is how a worker takes part.
type Worker struct {
	Name          string        `mapstructure:"name"`     // unique among the workers; empty: the machine's name and the process
	Gateways      []string      `mapstructure:"gateways"` // addresses that a link is kept to, besides those that the queue knows
	SecretFile    string        `mapstructure:"secret_file"`
	TLS           bool          `mapstructure:"tls"`    // implied by the following
	TLSCA         string        `mapstructure:"tls_ca"` // of the gateways' certificates; empty: the system's
	TLSCert       string        `mapstructure:"tls_cert"`
	TLSKey        string        `mapstructure:"tls_key"`
	TLSServerName string        `mapstructure:"tls_server_name"` // that gateways' certificates must have, instead of the host of the address
	Insecure      bool          `mapstructure:"insecure"`        // dial beyond this machine without TLS
	Patience      time.Duration `mapstructure:"patience"`        // with a gateway that can't be reached; then the runs for it fail
}

// clusterFiles are the keys of sections that name a file.
func clusterFiles() map[string][]string {
	return map[string][]string{
		"redis":  {"password_file"},
		"link":   {"secret_file", "tls_cert", "tls_key", "tls_client_ca"},
		"worker": {"secret_file", "tls_ca", "tls_cert", "tls_key"},

		"sidecar": {"socket", "secret_file", "tls_cert", "tls_key", "tls_client_ca", "tls_ca"},
	}
}

// anchorCluster makes the files that a file names usable as they are.
func anchorCluster(path string, settings map[string]any) {
	for section, keys := range clusterFiles() {
		m, ok := settings[section].(map[string]any)
		if !ok {
			continue
		}
		for _, key := range keys {
			if m[key] != nil {
				m[key] = anchor(path, m[key])
			}
		}
	}
}

func (r Redis) check() []error {
	c := &checks{path: "redis."}
	if r.URL == "" {
		return nil
	}
	schemes := []string{"redis", "rediss", "unix", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster"}
	if u, err := url.Parse(r.URL); err != nil || !slices.Contains(schemes, u.Scheme) {
		c.fail("url", "takes an address such as redis://127.0.0.1:6379/0; see docs/queue.md for Sentinel and Cluster") // it may hold a password: not shown
	}
	if r.Tokens != TokensLink && r.Tokens != TokensLog {
		c.fail("tokens", "is %q; it takes %s or %s", r.Tokens, TokensLink, TokensLog)
	}
	if r.Name == "" {
		c.fail("name", "is empty; it takes letters, digits, dots, dashes and underscores")
	}
	return c.errs
}

// LinkServer is the section in the form of package link.
func (c *Config) LinkServer(name, version string) link.Config {
	l, out := c.Link, link.DefaultConfig()
	out.Gateway, out.Version, out.Listen, out.Advertise, out.SecretFile = name, version, l.Listen, l.Advertise, l.SecretFile
	out.TLSCert, out.TLSKey, out.TLSClientCA, out.Insecure = l.TLSCert, l.TLSKey, l.TLSClientCA, l.Insecure
	return out
}

// LinkClient is the section in the form of package link.
func (c *Config) LinkClient(version string) link.ClientConfig {
	w, out := c.Worker, link.DefaultClientConfig()
	out.Worker, out.Version, out.Gateways, out.SecretFile = w.Name, version, w.Gateways, w.SecretFile
	out.TLS, out.TLSCA, out.TLSCert, out.TLSKey, out.TLSServerName = w.TLS, w.TLSCA, w.TLSCert, w.TLSKey, w.TLSServerName
	out.Insecure, out.Patience = w.Insecure, w.Patience
	return out
}

func (l Link) check() []error {
	if l.Listen == "" {
		return nil
	}
	c := Config{Link: l}
	own := c.LinkServer("gateway", "")
	return under("link.", own.Validate())
}

func (w Worker) check() []error {
	if w.Name == "" {
		w.Name = "worker"
	}
	c := Config{Worker: w}
	own := c.LinkClient("")
	return under("worker.", own.Validate())
}

// under puts each of the errors below a path.
func under(path string, err error) []error {
	all := []error{err}
	if joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		all = joined.Unwrap()
	}
	var out []error
	for _, e := range all {
		if e != nil {
			out = append(out, &FieldError{Path: path[:len(path)-1], Message: e.Error()})
		}
	}
	return out
}

// Password reads the file of the server's password.
func (r Redis) Password() (string, error) {
	if r.PasswordFile == "" {
		return "", nil
	}
	data, err := os.ReadFile(r.PasswordFile)
	return strings.TrimRight(string(data), "\r\n"), err
}
