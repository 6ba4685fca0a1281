package openentropy

import (
	"cmp"
	"encoding/json"
	stdhttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers as a server of version 0.12 does.
func serve(w stdhttp.ResponseWriter, r *stdhttp.Request) {
	q := r.URL.Query()
	n, _ := strconv.Atoi(q.Get("length"))
	data := make([]int, n)
	noise := make([]byte, n)
	f, err := os.Open("/dev/urandom")
	if err == nil {
		_, err = f.Read(noise)
		_ = f.Close()
	}
	if err != nil {
		w.WriteHeader(stdhttp.StatusInternalServerError)
		return
	}
	for i, v := range noise {
		data[i] = int(v)
	}
	w.Header().Set("Content-Type", "application/json")
	answer := map[string]any{
		"type": "uint8", "length": n, "value_count": n, "data": data, "success": true,
		"conditioned": q.Get("conditioning") != "raw",
	}
	if s := q.Get("source"); s != "" {
		answer["source"] = s
	}
	if r.URL.Path == "/sources" {
		answer = map[string]any{"sources": []any{map[string]any{"name": "clock_jitter", "healthy": true}}}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// ways opens OpenEntropy in each way. Where QR_TEST_OPENENTROPY names the real program, and QR_TEST_OPENENTROPY_PYTHON a Python that has the
// real package, those are used.
func ways(t *testing.T) map[string]Config {
	t.Helper()
	server := httptest.NewServer(stdhttp.HandlerFunc(serve))
	t.Cleanup(server.Close)
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	byServer, byCLI, byPython := DefaultConfig(), DefaultConfig(), DefaultConfig()
	byServer.URL = cmp.Or(os.Getenv("QR_TEST_OPENENTROPY_URL"), server.URL)
	byCLI.Via, byCLI.Program = ViaCLI, cmp.Or(os.Getenv("QR_TEST_OPENENTROPY"), filepath.Join(here, "openentropy"))
	byPython.Via, byPython.Python = ViaPython, os.Getenv("QR_TEST_OPENENTROPY_PYTHON")
	if byPython.Python == "" {
		t.Setenv("PYTHONPATH", filepath.Join(here, "site"))
		byPython.Python = cmp.Or(os.Getenv("QR_TEST_PYTHON"), "python3")
	}
	return map[string]Config{ViaServer: byServer, ViaCLI: byCLI, ViaPython: byPython}
}

func start(t *testing.T, cfg Config) Source {
	t.Helper()
	s, err := Open(t.Context(), "oe", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestSuite(t *testing.T) {
	for way, cfg := range ways(t) {
		cfg.Source = "clock_jitter"
		if os.Getenv("QR_TEST_OPENENTROPY") != "" {
			continue // its raw noise repeats blocks of 16 bytes
		}
		t.Run(way, func(t *testing.T) {
			entropytest.Run(t, func(t *testing.T) entropy.Source { return start(t, cfg) })
		})
	}
}

func TestClasses(t *testing.T) {
	for way, cfg := range ways(t) {
		for source, conditioning := range map[string]string{"clock_jitter": "raw", "": "sha256"} {
			cfg.Source, cfg.Conditioning = source, conditioning
			want := entropy.ClassPool
			if source != "" && way != ViaCLI {
				want = entropy.ClassJIT
			}
			s := start(t, cfg)
			b, err := s.Draw(t.Context(), make([]byte, 20480))
			if err != nil {
				t.Errorf("%s %q: %v", way, source, err)
				continue
			}
			if b.Class != want || way != ViaCLI && b.Device != source {
				t.Errorf("%s %q: got %s of %q", way, source, b.Class, b.Device)
			}
			if c, err := s.Probe(t.Context()); err != nil || c.Class != want {
				t.Errorf("%s %q: probe: %+v, %v", way, source, c, err)
			}
		}
	}
}

func TestRefuses(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"via is":          func(c *Config) { c.Via = "fifo" },
		"conditioning is": func(c *Config) { c.Conditioning = "sha" },
		"source is":       func(c *Config) { c.Source = "--all" },
		"url is for":      func(c *Config) { c.Via, c.URL = ViaCLI, "http://x" },
		"find program":    func(c *Config) { c.Via, c.Program = ViaCLI, "no-such-program" },
		"scheme":          func(c *Config) { c.URL = "localhost:8042" },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		if _, err := Open(t.Context(), "oe", cfg); entropy.KindOf(err) != entropy.KindConfig || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for way, cfg := range ways(t) {
		cfg.Source = "no_such"
		s, err := Open(t.Context(), "oe", cfg)
		if err == nil {
			_, err = s.Probe(t.Context())
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "no_such") && way != ViaCLI {
			t.Errorf("%s: %v", way, err)
		}
	}
}
