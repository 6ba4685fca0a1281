package http

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	stdhttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"qr-gateway/entropy"
)

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty, broken := file("empty", " \n"), file("broken", "no PEM")
	t.Setenv("QR_TEST_BAD_KEY", "se\ncret")
	json := func(c *Config) { c.API, c.URL, c.Field = "json", "https://h/?n={bytes}", "data" }
	for name, c := range map[string]struct {
		change func(*Config)
		text   string
	}{
		"no api":             {func(c *Config) { c.API = "" }, `api is ""; it must be one of anu`},
		"unknown api":        {func(c *Config) { c.API = "random.org" }, "random.org"},
		"no url":             {func(c *Config) { c.API, c.URL = "quantis", "" }, "url is empty"},
		"no host":            {func(c *Config) { c.URL = "http:///x" }, "no host"},
		"other scheme":       {func(c *Config) { c.URL = "ftp://h" }, `scheme "ftp"`},
		"no scheme":          {func(c *Config) { c.URL = "localhost:8042" }, "scheme"},
		"bad url":            {func(c *Config) { c.URL = "http://user:secret@[::1" }, "can't be read"},
		"password":           {func(c *Config) { c.URL = "http://user:secret@h" }, "user or password"},
		"fragment":           {func(c *Config) { c.URL = "http://h/#x" }, "fragment"},
		"no count":           {func(c *Config) { c.API, c.URL = "bytes", "http://h/" }, "{bytes} or {count}"},
		"no field":           {func(c *Config) { json(c); c.Field = "" }, "field"},
		"gap in field":       {func(c *Config) { json(c); c.Field = "a..b" }, "field"},
		"unknown encoding":   {func(c *Config) { json(c); c.Encoding = "base32" }, "base32"},
		"method":             {func(c *Config) { json(c); c.Method = "PUT" }, "PUT"},
		"body with GET":      {func(c *Config) { json(c); c.Body = "{bytes}" }, "body needs"},
		"unit":               {func(c *Config) { json(c); c.Unit = 0 }, "unit is 0"},
		"field of a named":   {func(c *Config) { c.Field = "data" }, "are for api bytes and json"},
		"source elsewhere":   {func(c *Config) { c.API, c.Source = "lfd", "x" }, "source is for"},
		"conditioning":       {func(c *Config) { c.Conditioning = "raw " }, "conditioning"},
		"class":              {func(c *Config) { c.Class = "fresh" }, "fresh"},
		"jit from a pool":    {func(c *Config) { c.Class, c.Source = entropy.ClassJIT, "" }, "comes from a pool"},
		"jit after hashing":  {func(c *Config) { c.Class, c.Source, c.Conditioning = entropy.ClassJIT, "x", "sha256" }, "comes from a pool"},
		"key needed":         {func(c *Config) { c.API = "anu" }, "needs a key"},
		"two keys":           {func(c *Config) { c.APIKeyEnv, c.APIKeyFile = "A", "b" }, "both given"},
		"no such variable":   {func(c *Config) { c.APIKeyEnv = "QR_TEST_NO_KEY" }, "QR_TEST_NO_KEY holds no API key"},
		"no such file":       {func(c *Config) { c.APIKeyFile = filepath.Join(dir, "gone") }, "api_key_file"},
		"key file a folder":  {func(c *Config) { c.APIKeyFile = dir }, "api_key_file"},
		"empty key":          {func(c *Config) { c.APIKeyFile = empty }, "holds no API key"},
		"key of two lines":   {func(c *Config) { c.APIKeyEnv = "QR_TEST_BAD_KEY" }, "can't stand in a header"},
		"bad header":         {func(c *Config) { c.APIKeyEnv, c.APIKeyHeader = "A", "X Key" }, "X Key"},
		"key in the clear":   {func(c *Config) { c.APIKeyEnv, c.URL = "A", "http://example.com" }, "unencrypted"},
		"draw":               {func(c *Config) { c.MaxDraw = -1 }, "max_draw"},
		"timeout":            {func(c *Config) { c.Timeout = 0 }, "timeout"},
		"requests":           {func(c *Config) { c.RequestsPerMinute = -2 }, "requests_per_minute"},
		"hold":               {func(c *Config) { c.QuotaHold = -1 }, "quota_hold"},
		"no authority":       {func(c *Config) { c.URL, c.TLSCA = "https://h", filepath.Join(dir, "gone") }, "certificate"},
		"broken authority":   {func(c *Config) { c.URL, c.TLSCA = "https://h", broken }, "broken"},
		"certificate alone":  {func(c *Config) { c.URL, c.TLSCert = "https://h", broken }, "belong together"},
		"TLS without https":  {func(c *Config) { c.TLSServerName = "x" }, "not https"},
		"authority a folder": {func(c *Config) { c.URL, c.TLSCA = "https://h", dir }, "directory"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.API = "openentropy"
			c.change(&cfg)
			_, err := Open(t.Context(), "test", cfg)
			if entropy.KindOf(err) != entropy.KindConfig || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v, want one with %q", err, c.text)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Error("the error shows a secret")
			}
		})
	}
}

// secureServer speaks TLS, and asks callers for a certificate where mutual.
func secureServer(t *testing.T, mutual bool) (server *httptest.Server, ca string) {
	t.Helper()
	server = httptest.NewUnstartedServer(stdhttp.HandlerFunc(serveBytes))
	if mutual {
		server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	}
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, writePEM(t, "CERTIFICATE", server.Certificate().Raw)
}

func writePEM(t *testing.T, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTLS(t *testing.T) {
	server, ca := secureServer(t, false)
	cfg := services()["quantis"].cfg
	cfg.URL = server.URL
	err := drawError(t, opened(t, cfg))
	if entropy.KindOf(err) != entropy.KindConfig || !strings.Contains(err.Error(), "trust the certificate") {
		t.Errorf("an unknown authority: %v", err)
	}
	cfg.TLSCA = ca
	draw(t, opened(t, cfg), 100)
	cfg.TLSServerName = "another.example.org"
	if err := drawError(t, opened(t, cfg)); entropy.KindOf(err) != entropy.KindConfig {
		t.Errorf("another name: %v", err)
	}
}

func TestMutualTLS(t *testing.T) {
	server, ca := secureServer(t, true)
	cfg := services()["quantis"].cfg
	cfg.URL, cfg.TLSCA = server.URL, ca
	if err := drawError(t, opened(t, cfg)); entropy.KindOf(err) != entropy.KindTransport {
		t.Errorf("without a certificate: %v", err)
	}
	// The server's own key pair will do for the client: only that there is one is asked.
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cfg.TLSCert, cfg.TLSKey = ca, writePEM(t, "PRIVATE KEY", key)
	draw(t, opened(t, cfg), 100)
}
