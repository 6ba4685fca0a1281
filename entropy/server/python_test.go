package server_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropytest"
	"qr-gateway/entropy/grpc"
	"qr-gateway/entropy/server"
)

// python is the interpreter that has grpcio.
func python(t *testing.T) string {
	t.Helper()
	p := os.Getenv("QR_TEST_PYTHON")
	if p == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("QR_TEST_PYTHON is not set")
		}
		t.Skip("QR_TEST_PYTHON is not set: eval \"$(make -s test-env)\"")
	}
	return p
}

// script runs one of the Python servers until the test ends and returns its address. It must end well when it is told to.
func script(t *testing.T, name, listen string, args ...string) string {
	t.Helper()
	cmd := exec.Command(python(t), append([]string{filepath.Join("python", name), "--listen", listen}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, lines)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, errors.String())
		}
	})
	if err != nil {
		t.Fatalf("%s does not start: %v", name, err)
	}
	return strings.TrimPrefix(strings.TrimSpace(first), "listening on ")
}

func remote(t *testing.T, address string, change func(*grpc.Config)) *grpc.Source {
	t.Helper()
	cfg := grpc.DefaultConfig()
	cfg.Address = address
	if change != nil {
		change(&cfg)
	}
	s, err := grpc.Open(context.Background(), "remote", cfg, grpc.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestPythonServers: our client draws from servers made with grpcio, in all modes, over sockets and TCP.
func TestPythonServers(t *testing.T) {
	for _, name := range []string{"template_server.py", "urandom_server.py"} {
		unix := script(t, name, "unix://"+filepath.Join(folder(t), "s"))
		for _, mode := range []string{grpc.ModeUnary, grpc.ModeServer, grpc.ModeBidi} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				entropytest.Run(t, func(t *testing.T) entropy.Source {
					return remote(t, unix, func(c *grpc.Config) { c.Mode = mode })
				})
			})
		}
	}
	t.Run("tcp with a key", func(t *testing.T) {
		keys := filepath.Join(folder(t), "keys")
		if err := os.WriteFile(keys, []byte("alpha\nbeta\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		tcp := script(t, "template_server.py", freePort(t), "--api-key-file", keys)
		caps, err := remote(t, tcp, nil).Probe(t.Context())
		if err != nil || caps.Details["health"] != "SERVING" || caps.Number {
			t.Errorf("probe: %+v, %v", caps, err)
		}
		for key, kind := range map[grpc.Secret]entropy.Kind{"alpha": "", "beta": "", "gamma": entropy.KindRefused, "": entropy.KindRefused} {
			_, err := remote(t, tcp, func(c *grpc.Config) { c.APIKey = key }).Draw(t.Context(), make([]byte, 20480))
			if entropy.KindOf(err) != kind || kind == "" && err != nil {
				t.Errorf("key %s: %v", string(key), err)
			}
		}
		_, err = remote(t, tcp, func(c *grpc.Config) { c.APIKey = "alpha" }).Number(t.Context(), entropy.NumberRequest{})
		if entropy.KindOf(err) != entropy.KindRefused {
			t.Errorf("a number from a server that makes none: %v", err)
		}
	})
}

// freePort is an address that nobody uses right now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestPythonClient: a client made with grpcio draws from our server.
func TestPythonClient(t *testing.T) {
	interpreter := python(t)
	for name, c := range map[string]struct {
		change func(*server.Config)
		key    []string
	}{
		"unix":       {},
		"tcp":        {change: func(c *server.Config) { c.Listen = []string{"127.0.0.1:0"} }},
		"with a key": {change: func(c *server.Config) { c.APIKeys = []string{"other", "alpha"} }, key: []string{"alpha"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil, c.change)
			cmd := exec.CommandContext(t.Context(), interpreter, append([]string{filepath.Join("testdata", "client.py"), s.Addrs()[0]}, c.key...)...)
			cmd.Env = append(os.Environ(), "PYTHONPATH=python", "PYTHONDONTWRITEBYTECODE=1")
			out, err := cmd.CombinedOutput()
			if err != nil || strings.TrimSpace(string(out)) != "ok" {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
