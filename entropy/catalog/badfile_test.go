package catalog

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"qr-gateway/entropy"
)

// fileOptions are the options that name a file, with what else their source needs.
var fileOptions = []struct{ typ, key, rest string }{
	{"grpc", "api_key_file", "address=localhost:1"},
	{"grpc", "tls_ca", "address=localhost:1"},
	{"grpc", "tls_cert", "address=localhost:1,tls_key=/nowhere"},
	{"http", "api_key_file", "api=anu"},
	{"http", "tls_ca", "api=quantis,url=https://localhost:1"},
	{"system", "calibration_file", ""},
	{"replay", "path", ""},
}

// TestFilesThatNeverEndAreRefused: a file option that names a directory, FIFO or device is refused at start, by source, option or path, and
// reason; reading it would wait, or never end.
func TestFilesThatNeverEndAreRefused(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skip(err)
	}
	for path, what := range map[string]string{dir: "directory", fifo: "FIFO", "/dev/zero": "device", filepath.Join(dir, "none"): "no such file"} {
		for _, o := range fileOptions {
			spec := Spec{Name: "lab", Type: o.typ, Options: map[string]any{o.key: path}}
			for _, pair := range strings.Split(o.rest, ",") {
				if k, v, ok := strings.Cut(pair, "="); ok {
					spec.Options[k] = v
				}
			}
			t.Run(fmt.Sprintf("%s %s %s", o.typ, o.key, what), func(t *testing.T) {
				t.Parallel()
				refusedSoon(t, spec, "lab", o.key, path, what)
			})
		}
	}
}

func refusedSoon(t *testing.T, spec Spec, wants ...string) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		s, err := Open(t.Context(), []Spec{spec}, Deps{})
		if err == nil {
			err = s.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		if entropy.KindOf(err) != entropy.KindConfig {
			t.Fatalf("got %v", err)
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
	case <-time.After(5 * time.Second):
		t.Fatal("it still reads")
	}
}
