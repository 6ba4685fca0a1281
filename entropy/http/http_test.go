package http

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	stdhttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	names := []string{"openentropy", "bytes"}
	if os.Getenv("QR_VERIFY") != "" {
		names = append(names, "outshift") // 21 calls a block
	}
	for _, name := range names {
		v := services()[name]
		t.Run(name, func(t *testing.T) {
			entropytest.Run(t, func(t *testing.T) entropy.Source { return start(t, v.cfg, v.serve) })
		})
	}
}

func TestBlock(t *testing.T) {
	want := map[string]struct {
		class  entropy.Class
		shots  int
		device string
	}{
		"anu": {entropy.ClassUnknown, 1, ""}, "anu_legacy": {entropy.ClassUnknown, 1, ""},
		"openentropy": {entropy.ClassJIT, 1, "clock_jitter"}, "openentropy pool": {entropy.ClassPool, 1, ""},
		"quantis": {entropy.ClassUnknown, 1, ""}, "lfd": {entropy.ClassUnknown, 1, ""}, "bytes": {entropy.ClassUnknown, 5, ""},
		"outshift": {entropy.ClassUnknown, 21, ""}, "qrypt": {entropy.ClassUnknown, 1, ""}, "words": {entropy.ClassUnknown, 1, ""},
	}
	for name, v := range services() {
		t.Run(name, func(t *testing.T) {
			s := start(t, v.cfg, v.serve)
			b := draw(t, s, 20480)
			if w := want[name]; b.Class != w.class || b.Shots != w.shots || b.Device != w.device {
				t.Errorf("got %+v, want %+v", b, w)
			}
			for _, n := range []int{1, 1023, 1024, 1025, 1043, 20479, 20481, 65537} {
				draw(t, s, n)
			}
			if c, err := s.Probe(t.Context()); err != nil || c.Class != b.Class {
				t.Errorf("probe: %+v, %v", c, err)
			}
		})
	}
}

// recorded plays an exchange with a real server back.
func recorded(t *testing.T, name string) stdhttp.HandlerFunc {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return func(w stdhttp.ResponseWriter, r *stdhttp.Request) {
		res, err := stdhttp.ReadResponse(bufio.NewReader(bytes.NewReader(file)), r)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = res.Body.Close() }()
		for k, v := range res.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(res.StatusCode)
		_, _ = io.Copy(w, res.Body)
	}
}

func TestRecordedOpenEntropy(t *testing.T) {
	cfg := services()["openentropy"].cfg
	s := start(t, cfg, recorded(t, "openentropy_0.12.3_raw.http"))
	if b := draw(t, s, 16); b.Bytes[0] != 72 || b.Device != "clock_jitter" || b.Class != entropy.ClassJIT {
		t.Errorf("got %+v", b)
	}
	pool := cfg
	pool.Source, pool.Conditioning = "", "sha256"
	draw(t, start(t, pool, recorded(t, "openentropy_0.12.3_pool.http")), 16)
	for file, kind := range map[string]entropy.Kind{"noraw": entropy.KindRefused, "unknown": entropy.KindRefused, "pool": entropy.KindProtocol} {
		if err := drawError(t, start(t, cfg, recorded(t, "openentropy_0.12.3_"+file+".http"))); entropy.KindOf(err) != kind {
			t.Errorf("%s: %v", file, err)
		}
	}
	cfg.Source = "no_such"
	if _, err := start(t, cfg, recorded(t, "openentropy_0.12.3_sources.http")).Probe(t.Context()); entropy.KindOf(err) != entropy.KindConfig || !strings.Contains(err.Error(), "clock_jitter") {
		t.Errorf("error %v", err)
	}
}

func drawError(t *testing.T, s *Source) error {
	t.Helper()
	buf := make([]byte, 16)
	b, err := s.Draw(t.Context(), buf)
	if err == nil {
		t.Fatalf("drew %x", b.Bytes)
	}
	return err
}

// open16 is an answer of an OpenEntropy server with changes.
func open16(changes ...string) string {
	text := `{"type":"uint8","length":16,"value_count":16,"data":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],"success":true,"conditioned":false,"source":"clock_jitter"}`
	return strings.NewReplacer(changes...).Replace(text)
}

func anu16(changes ...string) string {
	return strings.NewReplacer(changes...).Replace(`{"success":true,"type":"uint8","length":16,"data":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}`)
}

const (
	isJSON = "application/json"
	isText = "text/plain; charset=utf-8"
	octets = "application/octet-stream"
)

// Every way of an answer to be wrong ends the draw, with the kind that says what to do.
func TestTraps(t *testing.T) {
	for name, c := range map[string]struct {
		api   string
		serve stdhttp.HandlerFunc
		kind  entropy.Kind
		text  string
	}{
		"silently conditioned":  {"openentropy", gives(200, isJSON, "%s", open16(`"conditioned":false`, `"conditioned":true`)), entropy.KindProtocol, "--allow-raw"},
		"conditioned not said":  {"openentropy", gives(200, isJSON, "%s", open16(`,"conditioned":false`, ``)), entropy.KindProtocol, "does not say"},
		"not conditioned":       {"openentropy pool", gives(200, isJSON, "%s", open16(`,"source":"clock_jitter"`, ``)), entropy.KindProtocol, "not conditioned"},
		"another source":        {"openentropy", gives(200, isJSON, "%s", open16(`clock_jitter`, `sleep_jitter`)), entropy.KindProtocol, `source "sleep_jitter", not "clock_jitter"`},
		"source not echoed":     {"openentropy", gives(200, isJSON, "%s", open16(`,"source":"clock_jitter"`, ``)), entropy.KindProtocol, "source"},
		"pool where one source": {"openentropy pool", gives(200, isJSON, "%s", open16(`"conditioned":false`, `"conditioned":true`)), entropy.KindProtocol, `source "clock_jitter"`},
		"short":                 {"openentropy", gives(200, isJSON, "%s", open16(`,16]`, `]`)), entropy.KindProtocol, "holds 15 bytes where 16"},
		"short and says so":     {"openentropy", gives(200, isJSON, "%s", open16(`"length":16`, `"length":15`, `,16]`, `]`)), entropy.KindProtocol, "length 16"},
		"long":                  {"openentropy", gives(200, isJSON, "%s", open16(`,16]`, `,16,17]`)), entropy.KindProtocol, "more bytes than"},
		"values counted wrong":  {"openentropy", gives(200, isJSON, "%s", open16(`"value_count":16`, `"value_count":8`)), entropy.KindProtocol, "length 16"},
		"one text":              {"openentropy", gives(200, isJSON, "%s", open16(`[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]`, `"0102030405060708090a0b0c0d0e0f10"`)), entropy.KindProtocol, "no list"},
		"another type":          {"openentropy", gives(200, isJSON, "%s", open16(`uint8`, `hex16`)), entropy.KindProtocol, "type uint8"},
		"number over 255":       {"openentropy", gives(200, isJSON, "%s", open16(`16]`, `256]`)), entropy.KindProtocol, "no number of 8 bits"},
		"negative number":       {"openentropy", gives(200, isJSON, "%s", open16(`16]`, `-1]`)), entropy.KindProtocol, "no number"},
		"fraction":              {"openentropy", gives(200, isJSON, "%s", open16(`16]`, `1.5]`)), entropy.KindProtocol, "no number"},
		"null":                  {"openentropy", gives(200, isJSON, "%s", open16(`16]`, `null]`)), entropy.KindProtocol, "no number"},
		"no success":            {"openentropy", gives(200, isJSON, "%s", open16(`"success":true`, `"success":false,"error":"collection timed out"`)), entropy.KindProtocol, "collection timed out"},
		"success not said":      {"openentropy", gives(200, isJSON, "%s", open16(`"success":true,`, ``)), entropy.KindProtocol, "no success"},
		"no JSON":               {"openentropy", gives(200, isJSON, "oops"), entropy.KindProtocol, "read JSON"},
		"more than JSON":        {"openentropy", gives(200, isJSON, "%s{}", open16()), entropy.KindProtocol, "read JSON"},
		"text":                  {"openentropy", gives(200, isText, "%s", open16()), entropy.KindProtocol, "content type"},
		"throttled in text":     {"anu_legacy", gives(200, isText, "The QRNG API is limited to 1 requests per minute."), entropy.KindQuota, "limited to 1 requests"},
		"throttled as page":     {"anu", gives(200, "text/html", "<html>"), entropy.KindQuota, "<html>"},
		"JSON as text":          {"anu", gives(200, isText, "%s", anu16()), entropy.KindProtocol, "content type"},
		"no key":                {"anu", gives(403, isJSON, `{"message":"Forbidden"}`), entropy.KindRefused, "Forbidden"},
		"wrong key":             {"anu", gives(401, isJSON, `{}`), entropy.KindRefused, "401"},
		"too many":              {"anu", gives(429, isJSON, `{}`), entropy.KindQuota, "429"},
		"ANU no success":        {"anu", gives(200, isJSON, "%s", anu16(`true`, `false`)), entropy.KindProtocol, "no success"},
		"ANU other length":      {"anu", gives(200, isJSON, "%s", anu16(`"length":16`, `"length":"16"`)), entropy.KindProtocol, "read JSON"},
		"ANU short":             {"anu", gives(200, isJSON, "%s", anu16(`,16]`, `]`)), entropy.KindProtocol, "15 bytes"},
		"bad request":           {"anu", gives(400, isJSON, `{}`), entropy.KindRefused, "400"},
		"store is empty":        {"bytes", gives(404, isText, "Entropy Pool empty"), entropy.KindTransport, "Entropy Pool empty"},
		"broken server":         {"bytes", gives(500, isText, "boom"), entropy.KindTransport, "500"},
		"overloaded":            {"bytes", gives(503, isText, "later"), entropy.KindTransport, "503"},
		"empty answer":          {"bytes", gives(200, octets, ""), entropy.KindProtocol, "0 bytes where 16"},
		"no content":            {"bytes", gives(204, octets, ""), entropy.KindProtocol, "204"},
		"partial content":       {"bytes", gives(206, octets, "0123456789abcdef"), entropy.KindProtocol, "206"},
		"short body":            {"bytes", gives(200, octets, "0123456789abcde"), entropy.KindProtocol, "15 bytes where 16"},
		"long body":             {"bytes", gives(200, octets, "0123456789abcdefg"), entropy.KindProtocol, "17 bytes where 16"},
		"endless body":          {"bytes", gives(200, octets, "%s", strings.Repeat("x", 1<<20)), entropy.KindProtocol, "longer than 17 bytes"},
		"error as JSON":         {"lfd", gives(200, isJSON, `{"error":"busy"}`), entropy.KindProtocol, "busy"},
		"page for bytes":        {"quantis", gives(200, "text/html", "<html>login</html>"), entropy.KindProtocol, "text/html"},
		"bad content type":      {"quantis", gives(200, ";;", "0123456789abcdef"), entropy.KindProtocol, "content type"},
		"field missing":         {"words", gives(200, isJSON, `{"result":{"ok":true}}`), entropy.KindProtocol, `no field "values"`},
		"flag false":            {"words", gives(200, isJSON, `{"result":{"ok":false,"values":[]}}`), entropy.KindProtocol, "is false, not true"},
		"no object":             {"words", gives(200, isJSON, `[1]`), entropy.KindProtocol, "no item"},
		"null object":           {"words", gives(200, isJSON, `{"result":null}`), entropy.KindProtocol, "no object"},
		"bad base64":            {"qrypt", gives(200, isJSON, `{"random":["&&&&"]}`), entropy.KindProtocol, "no base64"},
		"deep JSON":             {"words", gives(200, isJSON, "%s", strings.Repeat("[", 60_000)), entropy.KindProtocol, "no JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, services()[c.api].cfg, c.serve)
			err := drawError(t, s)
			if entropy.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %q (%s), want kind %s with %q", err, entropy.KindOf(err), c.kind, c.text)
			}
		})
	}
}

// A small packed answer that unfolds to a huge one is not unfolded.
func TestGzipBomb(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for range 64 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	for api, encoding := range map[string]string{"openentropy": "gzip", "quantis": "gzip", "bytes": "br", "anu": "deflate"} {
		s := start(t, services()[api].cfg, func(w stdhttp.ResponseWriter, _ *stdhttp.Request) {
			w.Header().Set("Content-Encoding", encoding)
			w.Header().Set("Content-Type", map[bool]string{true: octets, false: isJSON}[services()[api].cfg.API == "bytes"])
			_, _ = w.Write(packed.Bytes())
		})
		if err := drawError(t, s); entropy.KindOf(err) != entropy.KindProtocol {
			t.Errorf("%s: %v", api, err)
		}
	}
}

func TestGzipIsRead(t *testing.T) {
	s := start(t, services()["openentropy"].cfg, func(w stdhttp.ResponseWriter, _ *stdhttp.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", isJSON)
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, open16())
		_ = z.Close()
	})
	if b := draw(t, s, 16); b.Bytes[15] != 16 {
		t.Errorf("got %x", b.Bytes)
	}
}

// The content type that a service sends can be told, should it not be the usual one.
func TestContentType(t *testing.T) {
	cfg := services()["quantis"].cfg
	cfg.ContentType = "text/plain"
	draw(t, start(t, cfg, gives(200, isText, "0123456789abcdef")), 16)
	if err := drawError(t, start(t, cfg, gives(200, octets, "0123456789abcdef"))); entropy.KindOf(err) != entropy.KindProtocol {
		t.Error(err)
	}
}

func TestRedirects(t *testing.T) {
	asked := false
	elsewhere := httptest.NewServer(stdhttp.HandlerFunc(func(w stdhttp.ResponseWriter, r *stdhttp.Request) {
		asked = true
		serveBytes(w, r)
	}))
	defer elsewhere.Close()
	s := start(t, services()["bytes"].cfg, func(w stdhttp.ResponseWriter, r *stdhttp.Request) {
		stdhttp.Redirect(w, r, elsewhere.URL+r.URL.RequestURI(), stdhttp.StatusFound)
	})
	if err := drawError(t, s); entropy.KindOf(err) != entropy.KindProtocol || !strings.Contains(err.Error(), "redirect refused") {
		t.Error(err)
	}
	if asked {
		t.Error("the other host was asked")
	}
	s = start(t, services()["bytes"].cfg, func(w stdhttp.ResponseWriter, r *stdhttp.Request) {
		if r.URL.Path == "/bytes" {
			stdhttp.Redirect(w, r, "/moved?"+r.URL.RawQuery, stdhttp.StatusFound)
			return
		}
		serveBytes(w, r)
	})
	draw(t, s, 100)
	s = start(t, services()["bytes"].cfg, func(w stdhttp.ResponseWriter, r *stdhttp.Request) {
		stdhttp.Redirect(w, r, r.URL.RequestURI(), stdhttp.StatusFound)
	})
	if err := drawError(t, s); !strings.Contains(err.Error(), "more than 3 in a row") {
		t.Error(err)
	}
}

// stuck serves nothing until the test or the client ends.
func stuck(t *testing.T) (serve stdhttp.HandlerFunc, asked chan struct{}) {
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	asked = make(chan struct{}, 16)
	return func(w stdhttp.ResponseWriter, r *stdhttp.Request) {
		w.Header().Set("Content-Type", octets)
		_, _ = w.Write([]byte("begin"))
		_ = stdhttp.NewResponseController(w).Flush()
		asked <- struct{}{}
		select {
		case <-end:
		case <-r.Context().Done():
		}
	}, asked
}

func TestTimeout(t *testing.T) {
	cfg := services()["bytes"].cfg
	cfg.Timeout = 100 * time.Millisecond
	serve, _ := stuck(t)
	if err := drawError(t, start(t, cfg, serve)); entropy.KindOf(err) != entropy.KindTimeout || !strings.Contains(err.Error(), "100ms") {
		t.Errorf("%v (%s)", err, entropy.KindOf(err))
	}
}

func TestCallerLeaves(t *testing.T) {
	serve, asked := stuck(t)
	s := start(t, services()["bytes"].cfg, serve)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := s.Draw(ctx, make([]byte, 16)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestCloseInADraw(t *testing.T) {
	serve, asked := stuck(t)
	s := start(t, services()["bytes"].cfg, serve)
	result := make(chan error, 1)
	go func() {
		_, err := s.Draw(t.Context(), make([]byte, 16))
		result <- err
	}()
	<-asked
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; entropy.KindOf(err) != entropy.KindClosed {
		t.Errorf("error %v", err)
	}
	if err := drawError(t, s); entropy.KindOf(err) != entropy.KindClosed {
		t.Errorf("error %v", err)
	}
}

func TestNobodyListens(t *testing.T) {
	server := httptest.NewServer(nil)
	cfg := services()["bytes"].cfg
	cfg.URL = server.URL + cfg.URL
	server.Close()
	if err := drawError(t, opened(t, cfg)); entropy.KindOf(err) != entropy.KindTransport {
		t.Errorf("%v (%s)", err, entropy.KindOf(err))
	}
}

// A service that says when to come again is not asked before, and one with a known limit never more often.
func TestQuotaIsKept(t *testing.T) {
	calls := 0
	s := start(t, services()["anu"].cfg, func(w stdhttp.ResponseWriter, _ *stdhttp.Request) {
		calls++
		w.Header().Set("Retry-After", "600")
		gives(429, isJSON, `{}`)(w, nil)
	})
	for range 3 {
		if err := drawError(t, s); entropy.KindOf(err) != entropy.KindQuota {
			t.Error(err)
		}
	}
	if calls != 1 {
		t.Errorf("asked %d times", calls)
	}
	cfg := services()["bytes"].cfg
	cfg.RequestsPerMinute = 3
	calls = 0
	s = start(t, cfg, func(w stdhttp.ResponseWriter, r *stdhttp.Request) { calls++; serveBytes(w, r) })
	if c, err := s.Probe(t.Context()); err != nil || calls != 0 || c.Details["requests_per_minute"] != "3" {
		t.Errorf("probe: %+v, %v, %d calls", c, err, calls)
	}
	draw(t, s, 10_000) // two calls
	for _, n := range []int{5001, 100_000} {
		if _, err := s.Draw(t.Context(), make([]byte, n)); entropy.KindOf(err) != entropy.KindQuota {
			t.Error(err)
		}
	}
	draw(t, s, 5000)
	if calls != 3 {
		t.Errorf("asked %d times", calls)
	}
}

func TestBudget(t *testing.T) {
	b := &budget{perMinute: 2}
	begin := time.Unix(1000, 0)
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	for i, c := range []struct {
		at, n int
		wait  time.Duration
		ok    bool
	}{
		{0, 1, 0, true},
		{10, 1, 0, true},
		{20, 1, 40 * time.Second, false},
		{59, 1, time.Second, false},
		{60, 2, 10 * time.Second, false},
		{60, 1, 0, true},
		{70, 3, 0, false},
		{70, 1, 0, true},
	} {
		if wait, ok := b.take(at(c.at), c.n); wait != c.wait || ok != c.ok {
			t.Errorf("%d: %v %v, want %v %v", i, wait, ok, c.wait, c.ok)
		}
	}
	b.usedUp(at(200), time.Minute)
	b.usedUp(at(200), time.Second)
	if wait, ok := b.take(at(201), 1); ok || wait != 59*time.Second {
		t.Errorf("%v %v", wait, ok)
	}
	if _, ok := b.take(at(260), 1); !ok {
		t.Error("held for too long")
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": time.Minute, "5": 5 * time.Second, "-5": time.Minute, "99999999": time.Hour, "soon": time.Minute,
		"Tue, 01 Jan 2030 00:02:00 GMT": 2 * time.Minute, "Mon, 31 Dec 2029 00:00:00 GMT": 0,
	} {
		if got := retryAfter(text, now, time.Minute); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
