package address_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/entropy/grpc/address"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]struct {
		network, dial string
		local         bool
	}{
		"localhost:50051":          {"tcp", "localhost:50051", true},
		"127.0.0.1:1":              {"tcp", "127.0.0.1:1", true},
		"[::1]:50051":              {"tcp", "[::1]:50051", true},
		"[::ffff:127.0.0.1]:1":     {"tcp", "[::ffff:127.0.0.1]:1", true},
		"[fe80::1%eth0]:50051":     {"tcp", "[fe80::1%eth0]:50051", false},
		"qrng.example.org:50051":   {"tcp", "qrng.example.org:50051", false},
		"10.0.0.115:50051":         {"tcp", "10.0.0.115:50051", false},
		":50051":                   {"tcp", ":50051", false},
		"[::]:0":                   {"tcp", "[::]:0", false},
		"unix:///run/qr/e.sock":    {"unix", "/run/qr/e.sock", true},
		"unix:/run/qr/../e.sock":   {"unix", "/run/e.sock", true},
		"unix-abstract:qr-entropy": {"unix", "@qr-entropy", true},
	} {
		a, err := address.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := []any{a.Network, a.Dial(), a.Local()}; cmp.Diff([]any{want.network, want.dial, want.local}, got) != "" {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "is empty",
		"localhost":                           "is no host:port",
		"localhost:":                          "must be a number",
		"localhost:99999":                     "must be a number",
		"localhost:+80":                       "must be a number",
		"localhost:grpc":                      "must be a number",
		"::1":                                 "write [::1]:50051",
		"fe80::1:5005":                        "write [fe80::1:5005]:50051",
		"unix:run/e.sock":                     "write unix:///absolute/path/to/run/e.sock",
		"unix://relative/e.sock":              "write unix:///absolute/path/to/relative/e.sock",
		"unix:":                               "relative path",
		"unix:///":                            "names no file",
		"unix:///run/":                        "names no file",
		"unix:///" + strings.Repeat("x", 120): "takes 107 at most",
		"unix-abstract:":                      "bad name",
		"http://localhost:1":                  "write localhost:1",
		"grpcs://qrng:443/":                   "write qrng:443",
		"a b:1":                               "no name or address",
		"host/path:1":                         "no name or address",
	} {
		if a, err := address.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %q", text, a, err, want)
		}
	}
}

func TestCheckDial(t *testing.T) {
	dir, err := os.MkdirTemp("", "qr") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	fifo, file, sock := filepath.Join(dir, "fifo"), filepath.Join(dir, "file"), filepath.Join(dir, "sock")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for text, want := range map[string]string{
		"unix://" + dir: "is a directory", "unix://" + fifo: "is a FIFO", "unix://" + file: "is a regular file", "unix:///dev/random": "is a device",
		"unix://" + file + "/s": "not a directory", ":1": "lacks a host", "localhost:0": "lacks a host",
		"unix://" + sock: "", "unix://" + dir + "/later": "", "unix-abstract:x": "", "localhost:1": "",
	} {
		a, err := address.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.CheckDial(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"localhost:1", "[::1]:1", "unix:///a", "unix-abstract:a", "http://x", ":0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := address.Parse(text)
		if err != nil {
			return
		}
		if a.Network != "tcp" && a.Network != "unix" || a.Dial() == "" {
			t.Fatalf("%q: %+v", text, a)
		}
		if a.Network == "tcp" {
			if _, _, err := net.SplitHostPort(a.Dial()); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
		}
	})
}
