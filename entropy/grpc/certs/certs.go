// Package certs reads the TLS files of an entropy client or server and says at start what is wrong with them: a connection that fails
// later says much less.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"qr-gateway/entropy/regular"
)

// maxFile bounds what is read of a file, in bytes.
const maxFile = 4 << 20

// Files are paths of PEM files.
type Files struct {
	CA   string // certificates that the other side's must be signed by; empty: the system's, or for a server, none is asked for
	Cert string // our own certificate, and its chain
	Key  string // its key
}

// Client makes the configuration of a caller: with a certificate of its own, that is mutual TLS. serverName replaces the host that is
// checked; it may be empty.
func Client(f Files, serverName string, now time.Time) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	var err error
	if f.CA != "" {
		if c.RootCAs, err = pool(f.CA, now); err != nil {
			return nil, fmt.Errorf("tls_ca: %w", err)
		}
	}
	if f.Cert != "" || f.Key != "" {
		c.Certificates, err = pair(f, now)
	}
	return c, err
}

// Server makes the configuration of a server. With a CA, callers must show a certificate that it signed.
func Server(f Files, now time.Time) (*tls.Config, error) {
	certs, err := pair(f, now)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: certs}
	if f.CA != "" {
		c.ClientAuth = tls.RequireAndVerifyClientCert
		if c.ClientCAs, err = pool(f.CA, now); err != nil {
			return nil, fmt.Errorf("tls_client_ca: %w", err)
		}
	}
	return c, nil
}

func pair(f Files, now time.Time) ([]tls.Certificate, error) {
	if f.Cert == "" || f.Key == "" {
		return nil, errors.New("tls_cert and tls_key belong together: one of them is not given")
	}
	text, certs, err := read(f.Cert)
	if err != nil {
		return nil, fmt.Errorf("tls_cert: %w", err)
	}
	if err := inTime(f.Cert, certs[0], now); err != nil {
		return nil, fmt.Errorf("tls_cert: %w", err)
	}
	key, err := regular.Read(f.Key, maxFile)
	if err != nil {
		return nil, fmt.Errorf("tls_key: read key: %w", err)
	}
	if block, _ := pem.Decode(key); block == nil {
		return nil, fmt.Errorf("tls_key: %s is not PEM", f.Key)
	}
	c, err := tls.X509KeyPair(text, key)
	if err != nil {
		return nil, fmt.Errorf("tls_key: %s does not fit certificate %s: %w", f.Key, f.Cert, err)
	}
	return []tls.Certificate{c}, nil
}

// pool reads certificate authorities.
func pool(path string, now time.Time) (*x509.CertPool, error) {
	_, certs, err := read(path)
	if err != nil {
		return nil, err
	}
	p, usable := x509.NewCertPool(), false
	for _, c := range certs {
		if err = inTime(path, c, now); err == nil {
			usable = true
		}
		p.AddCert(c)
	}
	if !usable {
		return nil, err // of the last; a bundle may well hold an old one
	}
	return p, nil
}

// read returns the text of a PEM file and its certificates, at least one.
func read(path string) (text []byte, certs []*x509.Certificate, err error) {
	if text, err = regular.Read(path, maxFile); err != nil {
		return nil, nil, fmt.Errorf("read certificate: %w", err)
	}
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, fmt.Errorf("certificate %s is broken: %w", path, err)
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, nil, fmt.Errorf("certificate %s is not PEM, or has no CERTIFICATE in it", path)
	}
	return text, certs, nil
}

func inTime(path string, c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("certificate %s (%s) expired on %s", path, c.Subject, c.NotAfter.UTC().Format(time.DateOnly))
	case now.Before(c.NotBefore):
		return fmt.Errorf("certificate %s (%s) is not valid before %s", path, c.Subject, c.NotBefore.UTC().Format(time.DateTime))
	}
	return nil
}
