package config

import (
	"path/filepath"
	"time"

	"qr-gateway/backends/vllm/sidecar"
)

// Sidecar is the sampler that vLLM's plugin calls.
type Sidecar struct {
	Socket        string        `mapstructure:"socket"` // path of the Unix socket that the plugin dials (its QR_SIDECAR); in the file, relative to the file's folder
	Users         []string      `mapstructure:"users"`  // names or numbers of users that vLLM may run as, besides our own and root
	Listen        string        `mapstructure:"listen"` // HOST:PORT or unix:///PATH for gateways and engines elsewhere, by gRPC; empty: none
	SecretFile    string        `mapstructure:"secret_file"`
	TLSCert       string        `mapstructure:"tls_cert"` // of the sidecar that listens, or of the gateway that dials one
	TLSKey        string        `mapstructure:"tls_key"`
	TLSClientCA   string        `mapstructure:"tls_client_ca"`   // callers must show a certificate that it signed
	TLS           bool          `mapstructure:"tls"`             // dial with TLS; implied by the following
	TLSCA         string        `mapstructure:"tls_ca"`          // of the certificate of a sidecar that is dialled; empty: the system's
	TLSServerName string        `mapstructure:"tls_server_name"` // that it must have, instead of the host of the address
	Insecure      bool          `mapstructure:"insecure"`        // listen or dial beyond this machine without TLS
	Deadline      time.Duration `mapstructure:"deadline"`        // for the choices of one step; a source that takes longer has failed
	Top           int           `mapstructure:"top"`             // logits of a compact row
	Keep          time.Duration `mapstructure:"keep"`            // an answer that nobody has asked about for so long is forgotten
	Requests      int           `mapstructure:"requests"`        // at once
}

// sidecarSocket is where the plugin looks where it isn't told otherwise.
const sidecarSocket = "/run/qr-gateway/sidecar.sock"

func defaultSidecar() Sidecar {
	c := sidecar.DefaultConfig()
	return Sidecar{Socket: sidecarSocket, Users: []string{}, Deadline: c.Deadline, Top: c.Top, Keep: c.Keep, Requests: c.Requests}
}

// Server is the section in the form of package sidecar. uids are the numbers of the users.
func (s Sidecar) Server(version string, uids []int) sidecar.Config {
	c := sidecar.DefaultConfig()
	c.Socket, c.UIDs, c.Listen, c.Version = s.Socket, uids, s.Listen, version
	if path, err := filepath.Abs(s.Socket); err == nil && s.Socket != "" {
		c.Socket = path
	}
	c.SecretFile, c.Insecure, c.TLSCert, c.TLSKey, c.TLSClientCA = s.SecretFile, s.Insecure, s.TLSCert, s.TLSKey, s.TLSClientCA
	c.Deadline, c.Top, c.Keep, c.Requests = s.Deadline, s.Top, s.Keep, s.Requests
	return c
}

// Client is the section in the form in which a sidecar elsewhere is dialled.
func (s Sidecar) Client(address string) sidecar.ClientConfig {
	c := sidecar.DefaultClientConfig()
	c.Address, c.SecretFile, c.Insecure = address, s.SecretFile, s.Insecure
	c.TLS, c.TLSCA, c.TLSCert, c.TLSKey, c.TLSServerName = s.TLS, s.TLSCA, s.TLSCert, s.TLSKey, s.TLSServerName
	return c
}

func (s Sidecar) check() []error {
	c := s.Server("", nil)
	if c.Listen == "" {
		c.TLSCert, c.TLSKey, c.TLSClientCA = "", "", "" // of a gateway that dials
	}
	return under("sidecar.", c.Validate())
}
