// Package certstest makes certificates for tests.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA is an authority whose certificate is in File.
type CA struct {
	File string

	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is the files of a certificate and its key.
type Pair struct{ Cert, Key string }

// NewCA makes an authority and writes its certificate into dir.
func NewCA(tb testing.TB, dir, name string, from, to time.Time) *CA {
	tb.Helper()
	c := &CA{File: filepath.Join(dir, name+".pem"), dir: dir, key: newKey(tb)}
	c.cert = &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	c.write(tb, c.File, c.cert, &c.key.PublicKey)
	return c
}

// Issue makes a certificate for this machine, good for both sides.
func (c *CA) Issue(tb testing.TB, name string, from, to time.Time) Pair {
	tb.Helper()
	key := newKey(tb)
	p := Pair{filepath.Join(c.dir, name+".cert.pem"), filepath.Join(c.dir, name+".key.pem")}
	c.write(tb, p.Cert, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, &key.PublicKey)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	save(tb, p.Key, "PRIVATE KEY", der)
	return p
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func (c *CA) write(tb testing.TB, path string, cert *x509.Certificate, pub *ecdsa.PublicKey) {
	tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, c.cert, pub, c.key)
	if err != nil {
		tb.Fatal(err)
	}
	save(tb, path, "CERTIFICATE", der)
}

func save(tb testing.TB, path, kind string, der []byte) {
	tb.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		tb.Fatal(err)
	}
}
