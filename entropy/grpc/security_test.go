package grpc_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc"
	"qr-gateway/entropy/grpc/certs/certstest"
	"qr-gateway/entropy/server"
)

// TestTLS: one-sided and mutual, over IPv4 and IPv6; who has the wrong papers is not served.
func TestTLS(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	ca := certstest.NewCA(t, dir, "ca", now.Add(-time.Hour), now.Add(time.Hour))
	stranger := certstest.NewCA(t, dir, "stranger", now.Add(-time.Hour), now.Add(time.Hour))
	host := ca.Issue(t, "host", now.Add(-time.Hour), now.Add(time.Hour))
	mine := ca.Issue(t, "mine", now.Add(-time.Hour), now.Add(time.Hour))
	theirs := stranger.Issue(t, "theirs", now.Add(-time.Hour), now.Add(time.Hour))
	one := serve(t, system(t), func(c *server.Config) {
		c.Listen, c.TLSCert, c.TLSKey, c.APIKeys = []string{"127.0.0.1:0"}, host.Cert, host.Key, []string{"k"}
	})
	mutual := serve(t, system(t), func(c *server.Config) {
		c.Listen, c.TLSCert, c.TLSKey, c.TLSClientCA = []string{ipv6(t)}, host.Cert, host.Key, ca.File
	})
	for name, c := range map[string]struct {
		address string
		change  func(*grpc.Config)
		ok      bool
	}{
		"one-sided":             {one, func(c *grpc.Config) { c.TLSCA, c.APIKey = ca.File, "k" }, true},
		"by name":               {one, func(c *grpc.Config) { c.TLSCA, c.APIKey, c.TLSServerName = ca.File, "k", "localhost" }, true},
		"another name":          {one, func(c *grpc.Config) { c.TLSCA, c.APIKey, c.TLSServerName = ca.File, "k", "example.org" }, false},
		"unknown authority":     {one, func(c *grpc.Config) { c.TLSCA, c.APIKey = stranger.File, "k" }, false},
		"no TLS":                {one, func(c *grpc.Config) { c.APIKey = "k" }, false},
		"mutual":                {mutual, func(c *grpc.Config) { c.TLSCA, c.TLSCert, c.TLSKey = ca.File, mine.Cert, mine.Key }, true},
		"without a certificate": {mutual, func(c *grpc.Config) { c.TLSCA = ca.File }, false},
		"stranger":              {mutual, func(c *grpc.Config) { c.TLSCA, c.TLSCert, c.TLSKey = ca.File, theirs.Cert, theirs.Key }, false},
	} {
		s := open(t, c.address, c.change)
		b, err := s.Draw(t.Context(), make([]byte, 20480))
		if (err == nil) != c.ok || c.ok && !b.Echoed {
			t.Errorf("%s: %v", name, err)
		}
		if !c.ok && entropy.KindOf(err) != entropy.KindTransport {
			t.Errorf("%s: kind %s", name, entropy.KindOf(err))
		}
	}
}

// ipv6 is an address for a server, of IPv6 where this machine has it.
func ipv6(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return "127.0.0.1:0"
	}
	return "[::1]:0"
}

// TestOpenRefuses: what can't work is found at start, and named.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*grpc.Config){
		`address "localhost"`:      func(c *grpc.Config) { c.Address = "localhost" },
		"relative path":            func(c *grpc.Config) { c.Address = "unix:s" },
		"is a device":              func(c *grpc.Config) { c.Address = "unix:///dev/null" },
		`mode "odd"`:               func(c *grpc.Config) { c.Mode = "odd" },
		`schema "odd"`:             func(c *grpc.Config) { c.Schema = "odd" },
		`payload "odd"`:            func(c *grpc.Config) { c.Payload = "odd" },
		`echo "odd"`:               func(c *grpc.Config) { c.Echo = "odd" },
		`class "odd"`:              func(c *grpc.Config) { c.Class = "odd" },
		"method_path":              func(c *grpc.Config) { c.Method = "GetEntropy" },
		"needs stream_method_path": func(c *grpc.Config) { c.Schema = "qrng" },
		"two meanings":             func(c *grpc.Config) { c.Fields.Time = 1 },
		"field_data 19000":         func(c *grpc.Config) { c.Fields.Data = 19000 },
		"needs field_sequence":     func(c *grpc.Config) { c.Fields.Sequence = -1 },
		`time_unit "h"`:            func(c *grpc.Config) { c.Fields.TimeUnit = "h" },
		"would go unencrypted":     func(c *grpc.Config) { c.Address, c.APIKey = "10.0.0.1:1", "k" },
		"both given":               func(c *grpc.Config) { c.APIKey, c.APIKeyFile = "k", empty },
		"is empty":                 func(c *grpc.Config) { c.APIKeyFile = empty },
		"read api_key_file":        func(c *grpc.Config) { c.APIKeyFile = filepath.Join(dir, "no") },
		"can't be sent":            func(c *grpc.Config) { c.APIKey = "a\nb" },
		"api_key_header":           func(c *grpc.Config) { c.APIKeyHeader = "grpc-key" },
		"no such file":             func(c *grpc.Config) { c.TLSCA = filepath.Join(dir, "no") },
		"is not PEM":               func(c *grpc.Config) { c.TLSCA = empty },
		"belong together":          func(c *grpc.Config) { c.TLSCert = empty },
		"retries 11":               func(c *grpc.Config) { c.Retries = 11 },
		"max_draw -1":              func(c *grpc.Config) { c.MaxDraw = -1 },
		"max_inflight 0":           func(c *grpc.Config) { c.MaxInFlight = 0 },
		"quota_hold":               func(c *grpc.Config) { c.QuotaHold = -1 },
		"rate -1":                  func(c *grpc.Config) { c.Rate = -1 },
		"timeout_floor":            func(c *grpc.Config) { c.Breaker.Floor = 2 * time.Hour },
	} {
		cfg := grpc.DefaultConfig()
		change(&cfg)
		_, err := grpc.Open(context.Background(), "lane", cfg, grpc.Deps{})
		wantKind(t, err, entropy.KindConfig, want)
		if err != nil && !strings.Contains(err.Error(), "lane") {
			t.Errorf("%s: the error does not name the source: %v", want, err)
		}
	}
	for name, change := range map[string]func(*grpc.Config){
		"key over TLS":             func(c *grpc.Config) { c.Address, c.APIKey, c.TLS = "10.0.0.1:1", "k", true },
		"key over a socket":        func(c *grpc.Config) { c.Address, c.APIKey = "unix:///tmp/qr-nobody", "k" },
		"key unencrypted, allowed": func(c *grpc.Config) { c.Address, c.APIKey, c.AllowInsecureKey = "10.0.0.1:1", "k", true },
		"bidi for short":           func(c *grpc.Config) { c.Mode = "bidi" },
	} {
		cfg := grpc.DefaultConfig()
		change(&cfg)
		s, err := grpc.Open(context.Background(), "lane", cfg, grpc.Deps{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_ = s.Close()
	}
}

// TestWhatServersSayIsKeptShort: what a server says goes into errors, logs and states, but not our key, and not at any length.
func TestWhatServersSayIsKeptShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("canary-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := scripted(t, func(e exchange) error {
		return status.Error(codes.Unauthenticated, strings.Repeat("x", 395)+" who is "+e.metadata("api-key")[0]+strings.Repeat("y", 4000))
	})
	s := open(t, address, func(c *grpc.Config) { c.APIKeyFile, c.Mode = path, grpc.ModeUnary })
	_, err := s.Draw(t.Context(), make([]byte, 8))
	wantKind(t, err, entropy.KindRefused, "xxx who is (key)")
	if err != nil && (strings.Contains(err.Error(), "canary") || len(err.Error()) > 700) {
		t.Errorf("%d characters: %v", len(err.Error()), err)
	}
}
