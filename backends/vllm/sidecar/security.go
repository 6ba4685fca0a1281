package sidecar

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"qr-gateway/entropy/grpc/address"
	"qr-gateway/entropy/grpc/certs"
	"qr-gateway/entropy/grpc/secret"
)

// Security is how the gRPC service is guarded.
type Security struct {
	Secret     string `mapstructure:"-"`           // that callers must show; or it is in a file
	SecretFile string `mapstructure:"secret_file"` //
	Insecure   bool   `mapstructure:"insecure"`    // listen beyond this machine without TLS

	TLSCert     string `mapstructure:"tls_cert"`      // PEM file; empty: no TLS
	TLSKey      string `mapstructure:"tls_key"`       // PEM file of its key
	TLSClientCA string `mapstructure:"tls_client_ca"` // PEM file: callers must show a certificate signed by one of these
}

// secretKey is where a caller shows the secret.
const secretKey = "qr-sidecar-secret"

// check says what is wrong for a service at that address. It reads no files.
func (c *Security) check(listen string) error {
	a, err := address.Parse(listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	all := []error{secret.CheckGiven(c.Secret, c.SecretFile)}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	check(a.Local() || c.TLSCert != "" || c.Insecure,
		"listen %s reaches beyond this machine, and logits and choices would cross the network in the clear: set tls_cert and tls_key, or insecure", listen)
	check(a.Network == "unix" || c.Secret != "" || c.SecretFile != "" || c.TLSClientCA != "",
		"listen %s: anybody who can connect could follow and end answers: set a secret or tls_client_ca", listen)
	check((c.TLSCert == "") == (c.TLSKey == ""), "tls_cert and tls_key belong together: one of them is not given")
	check(c.TLSClientCA == "" || c.TLSCert != "", "tls_client_ca needs tls_cert and tls_key")
	return errors.Join(all...)
}

// options are those of a gRPC server that is guarded so.
func (c *Security) options(now time.Time) ([]grpc.ServerOption, error) {
	if c.TLSCert == "" {
		return nil, nil
	}
	tls, err := certs.Server(certs.Files{CA: c.TLSClientCA, Cert: c.TLSCert, Key: c.TLSKey}, now)
	if err != nil {
		return nil, err
	}
	return []grpc.ServerOption{grpc.Creds(credentials.NewTLS(tls))}, nil
}

// ClientConfig is how a sidecar elsewhere is reached. Start from [DefaultClientConfig].
type ClientConfig struct {
	Address string `mapstructure:"address"` // host:port, or unix:///path

	Secret     string `mapstructure:"-"`           // to show; or it is in a file
	SecretFile string `mapstructure:"secret_file"` //
	Insecure   bool   `mapstructure:"insecure"`    // dial beyond this machine without TLS

	TLS           bool   `mapstructure:"tls"`             // implied by the following
	TLSCA         string `mapstructure:"tls_ca"`          // PEM file: the sidecar's certificate must be signed by one of these; empty: the system's
	TLSCert       string `mapstructure:"tls_cert"`        // PEM file of our own certificate
	TLSKey        string `mapstructure:"tls_key"`         // PEM file of its key
	TLSServerName string `mapstructure:"tls_server_name"` // that the sidecar's certificate must have, instead of the host of the address

	Connect    time.Duration `mapstructure:"connect"`     // for one call to be taken
	BackoffMin time.Duration `mapstructure:"backoff_min"` // before a lost trail or list is asked for again; doubles with each further try
	BackoffMax time.Duration `mapstructure:"backoff_max"` //
}

// DefaultClientConfig lacks the address and the secret.
func DefaultClientConfig() ClientConfig {
	return ClientConfig{Connect: 5 * time.Second, BackoffMin: 20 * time.Millisecond, BackoffMax: time.Second}
}

// Validate says what is wrong. It reads no files.
func (c *ClientConfig) Validate() error {
	a, err := address.Parse(c.Address)
	if err == nil {
		err = a.CheckDial()
	}
	if err != nil {
		return fmt.Errorf("address: %w", err)
	}
	all := []error{secret.CheckGiven(c.Secret, c.SecretFile)}
	if !c.secure() && !c.Insecure && !a.Local() {
		all = append(all, fmt.Errorf("address %s is on another machine, and choices would cross the network in the clear: set tls, or insecure", c.Address))
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		all = append(all, errors.New("tls_cert and tls_key belong together: one of them is not given"))
	}
	if c.Connect <= 0 || c.BackoffMin <= 0 || c.BackoffMax < c.BackoffMin {
		all = append(all, fmt.Errorf("connect is %v, backoff_min %v, backoff_max %v; they take more than 0, the last two in this order", c.Connect, c.BackoffMin, c.BackoffMax))
	}
	return errors.Join(all...)
}

func (c *ClientConfig) secure() bool {
	return c.TLS || c.TLSCA != "" || c.TLSCert != "" || c.TLSServerName != ""
}

// transport reads the TLS files.
func (c *ClientConfig) transport(now time.Time) (credentials.TransportCredentials, error) {
	if !c.secure() {
		return insecure.NewCredentials(), nil
	}
	tls, err := certs.Client(certs.Files{CA: c.TLSCA, Cert: c.TLSCert, Key: c.TLSKey}, c.TLSServerName, now)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(tls), nil
}
