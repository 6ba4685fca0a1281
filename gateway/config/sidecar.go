package config

import "time"

// Sidecar is the sampler that vLLM's plugin calls.
type Sidecar struct {
	Socket      string        `mapstructure:"socket"` // path of the Unix socket that the plugin dials (its QR_SIDECAR); in the file, relative to the file's folder
	Users       []string      `mapstructure:"users"`  // names or numbers of users that vLLM may run as, besides our own and root
	Listen      string        `mapstructure:"listen"` // HOST:PORT or unix:///PATH for gateways and engines elsewhere, by gRPC; empty: none
	SecretFile  string        `mapstructure:"secret_file"`
	TLSCert     string        `mapstructure:"tls_cert"`
	TLSKey      string        `mapstructure:"tls_key"`
	TLSClientCA string        `mapstructure:"tls_client_ca"` // callers must show a certificate that it signed
	Insecure    bool          `mapstructure:"insecure"`      // listen beyond this machine without TLS
	Deadline    time.Duration `mapstructure:"deadline"`      // for the choices of one step; a source that takes longer has failed
	Top         int           `mapstructure:"top"`           // logits of a compact row
	Keep        time.Duration `mapstructure:"keep"`          // an answer that nobody has asked about for so long is forgotten
	Requests    int           `mapstructure:"requests"`      // at once
}

func defaultSidecar() Sidecar {
	return Sidecar{
		Socket: "/run/qr-gateway/sidecar.sock", Users: []string{}, Deadline: 200 * time.Millisecond, Top: 256, Keep: time.Minute, Requests: 4096,
	}
}
