package link

import (
	"errors"
	"fmt"
	"time"

	"qr-gateway/entropy/grpc/address"
	"qr-gateway/entropy/grpc/certs"
)

// ClientConfig is how a worker dials gateways.
type ClientConfig struct {
	Worker   string   `mapstructure:"-"`        // name, unique among the workers of a gateway
	Version  string   `mapstructure:"-"`        // of the program
	Gateways []string `mapstructure:"gateways"` // addresses that a link is kept to: host:port, or unix:///path

	Secret     string `mapstructure:"-"`           // to show to gateways; or it is in a file
	SecretFile string `mapstructure:"secret_file"` //
	Insecure   bool   `mapstructure:"insecure"`    // dial beyond this machine without TLS

	TLS           bool   `mapstructure:"tls"`             // implied by the following
	TLSCA         string `mapstructure:"tls_ca"`          // PEM file: gateways' certificates must be signed by one of these; empty: the system's
	TLSCert       string `mapstructure:"tls_cert"`        // PEM file of our own certificate
	TLSKey        string `mapstructure:"tls_key"`         // PEM file of its key
	TLSServerName string `mapstructure:"tls_server_name"` // that gateways' certificates must have, instead of the host of the address

	MaxMessage int           `mapstructure:"max_message"` // bytes of one frame or request
	Patience   time.Duration `mapstructure:"patience"`    // with a gateway that can't be reached; then the runs for it fail
	Pulse      time.Duration `mapstructure:"pulse"`       // between signs of life, and looks at what has changed
	Silence    time.Duration `mapstructure:"silence"`     // after which a gateway that sends none back counts as gone
	Handshake  time.Duration `mapstructure:"handshake"`   // to connect and be welcomed
	BackoffMin time.Duration `mapstructure:"backoff_min"` // before the first try to connect again; doubles with each further one
	BackoffMax time.Duration `mapstructure:"backoff_max"` //
	Idle       time.Duration `mapstructure:"idle"`        // after which a link ends that no job needs and Gateways doesn't name
}

// DefaultClientConfig lacks the worker's name and the secret.
func DefaultClientConfig() ClientConfig {
	return ClientConfig{
		MaxMessage: 16 << 20, Patience: 6 * time.Second, Pulse: time.Second, Silence: 3 * time.Second, Handshake: 5 * time.Second,
		BackoffMin: 50 * time.Millisecond, BackoffMax: time.Second, Idle: time.Minute,
	}
}

// Validate says what is wrong. It reads no files.
func (c *ClientConfig) Validate() error {
	var f findings
	f.check(goodName(c.Worker), "name of the worker is %q; it takes 1 to %d visible characters", c.Worker, maxNameBytes)
	for _, g := range c.Gateways {
		if _, err := c.reach(g); err != nil {
			f = append(f, err)
		}
	}
	f.secret(c.Secret, c.SecretFile)
	f.check((c.TLSCert == "") == (c.TLSKey == ""), "tls_cert and tls_key belong together: one of them is not given")
	f.size(c.MaxMessage)
	f.check(c.Patience > 0 && c.Pulse > 0 && c.Handshake > 0 && c.Idle > 0,
		"patience is %v, pulse %v, handshake %v, idle %v; they take more than 0", c.Patience, c.Pulse, c.Handshake, c.Idle)
	f.check(c.Silence >= 2*c.Pulse, "silence is %v; it takes at least twice the pulse, which is %v", c.Silence, c.Pulse)
	f.check(c.BackoffMin > 0 && c.BackoffMax >= c.BackoffMin, "backoff_min is %v, backoff_max %v; they take more than 0 in this order", c.BackoffMin, c.BackoffMax)
	return errors.Join(f...)
}

func (c *ClientConfig) secure() bool {
	return c.TLS || c.TLSCA != "" || c.TLSCert != "" || c.TLSServerName != ""
}

func (c *ClientConfig) files() certs.Files {
	return certs.Files{CA: c.TLSCA, Cert: c.TLSCert, Key: c.TLSKey}
}

// reach checks that a gateway may be dialled.
func (c *ClientConfig) reach(gateway string) (address.Address, error) {
	a, err := address.Parse(gateway)
	if err == nil {
		err = a.CheckDial()
	}
	if err != nil {
		return a, fmt.Errorf("gateway: %w", err)
	}
	if !c.secure() && !c.Insecure && !a.Local() {
		return a, fmt.Errorf("gateway %s is on another machine, and prompts and answers would cross the network in the clear: set tls, or insecure", gateway)
	}
	return a, nil
}
