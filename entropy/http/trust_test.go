package http

import (
	"fmt"
	stdhttp "net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"qr-gateway/entropy"
)

// A key goes into its header and nowhere else.
func TestKeyStaysSecret(t *testing.T) {
	t.Setenv("QR_TEST_SECRET", "canary-key")
	cfg := services()["qrypt"].cfg
	cfg.APIKeyEnv = "QR_TEST_SECRET"
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("right key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	byFile := cfg
	byFile.APIKeyEnv, byFile.APIKeyFile = "", path
	draw(t, start(t, byFile, serveQrypt), 16)
	s := start(t, cfg, func(w stdhttp.ResponseWriter, r *stdhttp.Request) {
		gives(401, isText, "who is %s at %s?", r.Header.Get("Authorization"), r.URL)(w, r)
	})
	err := drawError(t, s)
	if !strings.Contains(err.Error(), "Bearer (key)") {
		t.Errorf("the key was not sent: %v", err)
	}
	for _, text := range []string{err.Error(), fmt.Sprintf("%v %+v %#v", s.key, s.key, s.key)} {
		if strings.Contains(text, "canary") {
			t.Errorf("the key is shown: %s", text)
		}
	}
}

// TestKeyInAnAnswer: nor does a key that the service sends back in the text of its answer.
func TestKeyInAnAnswer(t *testing.T) {
	t.Setenv("QR_TEST_SECRET", "canary-key")
	for name, answer := range map[string]string{
		"anu":   `{"success":false,"message":"the key canary-key is not known"}`,
		"qrypt": `{"random":["canary-key"]}`,
		"words": `{"result":{"ok":"canary-key"}}`,
	} {
		cfg := services()[name].cfg
		cfg.APIKeyEnv = "QR_TEST_SECRET"
		err := drawError(t, start(t, cfg, gives(200, isJSON, "%s", answer)))
		if strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the key is shown: %v", name, err)
		}
	}
}

// TestCachedAnswersAreRefused: what a cache on the way hands out was handed out before, or may be again.
func TestCachedAnswersAreRefused(t *testing.T) {
	for age, ok := range map[string]bool{"": true, "0": true, "1": false, "86400": false, "old": false} {
		s := start(t, services()["quantis"].cfg, func(w stdhttp.ResponseWriter, r *stdhttp.Request) {
			if r.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("caches on the way are told %q", r.Header.Get("Cache-Control"))
			}
			if age != "" {
				w.Header().Set("Age", age)
			}
			gives(200, octets, "0123456789abcdef")(w, r)
		})
		if ok {
			draw(t, s, 16)
		} else if err := drawError(t, s); entropy.KindOf(err) != entropy.KindProtocol || !strings.Contains(err.Error(), "cache") {
			t.Errorf("age %q: %v", age, err)
		}
	}
}

// TestRequestsSentAgainAreCounted: a connection that was kept may break before an answer begins. The transport then sends the request again,
// and the service may have made bytes twice.
func TestRequestsSentAgainAreCounted(t *testing.T) {
	var asked atomic.Int32
	s := start(t, services()["quantis"].cfg, func(w stdhttp.ResponseWriter, r *stdhttp.Request) {
		if asked.Add(1) == 2 {
			panic(stdhttp.ErrAbortHandler)
		}
		gives(200, octets, "0123456789abcdef")(w, r)
	})
	if b := draw(t, s, 16); b.Shots != 1 {
		t.Errorf("the first: %d", b.Shots)
	}
	if b := draw(t, s, 16); b.Shots != 2 || asked.Load() != 3 {
		t.Errorf("the second: %d reads, %d requests", b.Shots, asked.Load())
	}
}
