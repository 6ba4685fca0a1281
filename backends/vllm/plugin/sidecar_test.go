package plugin_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"qr-gateway/backends/supply"
	"qr-gateway/backends/vllm/sidecar"
)

// TestSidecar runs the plugin, in stand-ins of both model runners, against the sidecar that it is made for. Compact rows have so few entries
// that whole ones are asked for.
func TestSidecar(t *testing.T) {
	python := interpreter(t)
	cfg := sidecar.DefaultConfig()
	cfg.Socket, cfg.Top, cfg.Deadline = filepath.Join(t.TempDir(), "s.sock"), 4, 5*time.Second // machines are busy
	s, err := sidecar.New(cfg, sidecar.Deps{Sources: supply.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	run(t, python, filepath.Join("testdata", "sidecar.py"), cfg.Socket)
}
