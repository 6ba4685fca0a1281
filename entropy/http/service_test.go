package http

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	stdhttp "net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"qr-gateway/entropy"
)

// random is n fresh bytes.
func random(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.Read(p)
	return p
}

func numbers(p []byte) []int {
	out := make([]int, len(p))
	for i, v := range p {
		out[i] = int(v)
	}
	return out
}

func texts(p []byte, size int) []string {
	var out []string
	for ; len(p) > 0; p = p[size:] {
		out = append(out, hex.EncodeToString(p[:size]))
	}
	return out
}

func writeJSON(w stdhttp.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func number(r *stdhttp.Request, key string, least, most int) (int, bool) {
	n, err := strconv.Atoi(r.URL.Query().Get(key))
	return n, err == nil && n >= least && n <= most
}

// serveANU speaks the published interface with keys.
func serveANU(w stdhttp.ResponseWriter, r *stdhttp.Request) {
	if r.Header.Get("X-Api-Key") != "right key" {
		writeJSON(w, 403, map[string]string{"message": "Forbidden"})
		return
	}
	n, ok := number(r, "length", 1, 1024)
	size, sized := number(r, "size", 1, 10)
	kind := r.URL.Query().Get("type")
	var data any
	switch {
	case !ok:
		writeJSON(w, 400, map[string]any{"success": false, "message": "length"})
		return
	case kind == "uint8" && r.URL.Query().Get("size") == "":
		data = numbers(random(n))
	case kind == "hex16" && sized:
		data = texts(random(n*size*2), size*2)
	default:
		writeJSON(w, 400, map[string]any{"success": false, "message": "type"})
		return
	}
	writeJSON(w, 200, map[string]any{"success": true, "type": kind, "length": strconvNumber(n), "data": data})
}

func strconvNumber(n int) json.Number { return json.Number(strconv.Itoa(n)) }

// serveLegacy speaks the old interface: a word of hex16 has one byte.
func serveLegacy(w stdhttp.ResponseWriter, r *stdhttp.Request) {
	n, ok := number(r, "length", 1, 1024)
	if !ok {
		writeJSON(w, 200, map[string]any{"success": false})
		return
	}
	if r.URL.Query().Get("type") == "uint8" {
		writeJSON(w, 200, map[string]any{"type": "uint8", "length": n, "data": numbers(random(n)), "success": true})
		return
	}
	size, _ := number(r, "size", 1, 1024)
	writeJSON(w, 200, map[string]any{"type": "string", "length": n, "size": size, "data": texts(random(n*size), size), "success": true})
}

// serveOpen speaks the interface of an OpenEntropy server of version 0.12, or 0.6, that allows raw bytes.
func serveOpen(w stdhttp.ResponseWriter, r *stdhttp.Request) {
	if r.URL.Path == "/sources" {
		writeJSON(w, 200, map[string]any{"sources": []any{map[string]any{"name": "clock_jitter", "healthy": true}}, "total": 1})
		return
	}
	n, ok := number(r, "length", 1, 65536)
	if !ok || r.URL.Path != "/api/v1/random" || r.URL.Query().Get("type") != "uint8" {
		writeJSON(w, 400, map[string]any{"success": false, "error": "bad"})
		return
	}
	answer := map[string]any{"type": "uint8", "length": n, "value_count": n, "data": numbers(random(n)), "success": true, "conditioned": r.URL.Query().Get("conditioning") != "raw"}
	if source := r.URL.Query().Get("source"); source != "" {
		answer["source"] = source
	}
	writeJSON(w, 200, answer)
}

func serveBytes(w stdhttp.ResponseWriter, r *stdhttp.Request) {
	for _, key := range []string{"size", "length"} {
		if n, ok := number(r, key, 1, 1<<20); ok {
			w.Header().Set("Content-Type", "application/octet-stream")
			_, _ = w.Write(random(n))
			return
		}
	}
	w.WriteHeader(stdhttp.StatusBadRequest)
}

// serveOutshift speaks an interface that takes a POST and sends objects with a number each.
func serveOutshift(w stdhttp.ResponseWriter, r *stdhttp.Request) {
	var ask struct {
		Count int `json:"number_of_blocks"`
	}
	if json.NewDecoder(r.Body).Decode(&ask) != nil || ask.Count < 1 || ask.Count > 1000 || r.Method != stdhttp.MethodPost {
		w.WriteHeader(stdhttp.StatusBadRequest)
		return
	}
	var list []any
	for _, v := range random(ask.Count) {
		list = append(list, map[string]string{"decimal": strconv.Itoa(int(v))})
	}
	writeJSON(w, 200, map[string]any{"random_numbers": list})
}

// serveQrypt counts in KiB and sends base64 in blocks of 1024 bytes.
func serveQrypt(w stdhttp.ResponseWriter, r *stdhttp.Request) {
	n, ok := number(r, "size", 1, 512)
	if !ok || r.Header.Get("Authorization") != "Bearer right key" {
		writeJSON(w, 401, map[string]string{"message": "unauthorized"})
		return
	}
	var blocks []string
	for range n {
		blocks = append(blocks, base64.StdEncoding.EncodeToString(random(1024)))
	}
	writeJSON(w, 200, map[string]any{"random": blocks, "size": n})
}

func serve16(w stdhttp.ResponseWriter, r *stdhttp.Request) {
	n, _ := number(r, "n", 1, 1<<20)
	var words []int
	for p := random(2 * n); len(p) > 0; p = p[2:] {
		words = append(words, int(p[0])|int(p[1])<<8)
	}
	writeJSON(w, 200, map[string]any{"result": map[string]any{"ok": true, "values": words}})
}

// service is an interface and who speaks it.
type service struct {
	serve stdhttp.HandlerFunc
	cfg   Config
}

func services() map[string]service {
	with := func(change func(*Config)) Config {
		cfg := DefaultConfig()
		change(&cfg)
		return cfg
	}
	return map[string]service{
		"anu":              {serveANU, with(func(c *Config) { c.API, c.APIKeyEnv = "anu", "QR_TEST_KEY" })},
		"anu_legacy":       {serveLegacy, with(func(c *Config) { c.API, c.RequestsPerMinute = "anu_legacy", -1 })},
		"openentropy":      {serveOpen, with(func(c *Config) { c.API, c.Source = "openentropy", "clock_jitter" })},
		"openentropy pool": {serveOpen, with(func(c *Config) { c.API, c.Conditioning = "openentropy", "sha256" })},
		"quantis":          {serveBytes, with(func(c *Config) { c.API = "quantis" })},
		"lfd":              {serveBytes, with(func(c *Config) { c.API = "lfd" })},
		"bytes":            {serveBytes, with(func(c *Config) { c.API, c.URL, c.MaxDraw = "bytes", "/bytes?size={bytes}", 5000 })},
		"outshift": {serveOutshift, with(func(c *Config) {
			c.API, c.URL, c.Method, c.MaxDraw = "json", "/api", "POST", 1000
			c.Body = `{"encoding":"raw","format":"all","bits_per_block":8,"number_of_blocks":{count}}`
			c.Field = "random_numbers.*.decimal"
		})},
		"qrypt": {serveQrypt, with(func(c *Config) {
			c.API, c.URL, c.Unit = "json", "/api?size={count}", 1024
			c.Field, c.Encoding = "random", encodingBase64
			c.APIKeyEnv, c.APIKeyPrefix = "QR_TEST_KEY", "Bearer "
		})},
		"words": {serve16, with(func(c *Config) {
			c.API, c.URL, c.Unit = "json", "/?n={count}", 2
			c.Field, c.Encoding, c.Success = "result.values", encodingUint16le, "result.ok"
		})},
	}
}

// start serves and opens a service.
func start(t *testing.T, cfg Config, serve stdhttp.HandlerFunc) *Source {
	t.Helper()
	t.Setenv("QR_TEST_KEY", "right key")
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	cfg.URL = server.URL + cfg.URL
	return opened(t, cfg)
}

func opened(t *testing.T, cfg Config) *Source {
	t.Helper()
	s, err := Open(t.Context(), "test", cfg)
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

func draw(t *testing.T, s *Source, n int) entropy.Block {
	t.Helper()
	b, err := s.Draw(t.Context(), make([]byte, n))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// gives serves one answer, whatever is asked.
func gives(status int, contentType, format string, args ...any) stdhttp.HandlerFunc {
	return func(w stdhttp.ResponseWriter, _ *stdhttp.Request) {
		w.Header()["Content-Type"] = []string{contentType}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, format, args...)
	}
}
