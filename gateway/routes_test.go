package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
	"qr-gateway/gateway"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/sampler"
)

const hello = `{"model":"fake","messages":[{"role":"user","content":"hi"}],"seed":7}`

func TestRoutes(t *testing.T) {
	r := newRig().build(t)
	cases := []struct {
		method, path string
		status       int
	}{
		{"POST", "/v1/chat/completions", 200},
		{"POST", "/chat/completions", 200},
		{"POST", "//v1//chat/completions", 200},
		{"POST", "/v1/chat/completions/", 200},
		{"POST", "/v1/completions", 400},
		{"POST", "/completions", 400},
		{"GET", "/v1/models", 200},
		{"HEAD", "/v1/models", 200},
		{"GET", "//v1/models", 200},
		{"GET", "/v1//models/", 200},
		{"GET", "/models", 200},
		{"GET", "/v1/models/fake", 200},
		{"GET", "/models/fake", 200},
		{"GET", "/v1/models/none", 404},
		{"GET", "/v1/models/a/b", 404},
		{"GET", "/v1/qr/parameters", 200},
		{"GET", "/qr/parameters", 200},
		{"GET", "/healthz", 200},
		{"HEAD", "/healthz", 200},
		{"GET", "/readyz", 200},
		{"GET", "/metrics", 200},
		{"GET", "/", 404},
		{"GET", "/v1", 404},
		{"POST", "/v1/embeddings", 404},
		{"GET", "/nowhere", 404},
		{"GET", "/v1/chat/completions", 405},
		{"DELETE", "/v1/models", 405},
		{"OPTIONS", "/v1/models", 405},
		{"POST", "/healthz", 405},
	}
	for _, c := range cases {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			w := httptest.NewRecorder()
			req := httptest.NewRequestWithContext(t.Context(), c.method, "/x", strings.NewReader(hello))
			req.URL.Path = c.path
			r.srv.ServeHTTP(w, req)
			if w.Code != c.status {
				t.Fatalf("got %d %.200s, want %d", w.Code, w.Body, c.status)
			}
			if w.Code >= 400 {
				envelope(t, w.Body.Bytes())
			}
			if c.path != "/metrics" && !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
				t.Errorf("content type is %q", w.Header().Get("Content-Type"))
			}
		})
	}
	if allow := r.get("/v1/chat/completions").Header().Get("Allow"); allow != "POST" {
		t.Errorf("Allow is %q, want POST", allow)
	}
}

func TestRequestID(t *testing.T) {
	r := newRig().build(t)
	for given, want := range map[string]string{"mine-1": "mine-1", "": "req_", "two words": "req_", strings.Repeat("x", 129): "req_"} {
		req := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/models", nil)
		req.Header.Set("X-Request-Id", given)
		w := httptest.NewRecorder()
		r.srv.ServeHTTP(w, req)
		if got := w.Header().Get("X-Request-Id"); !strings.HasPrefix(got, want) {
			t.Errorf("for %.20q got %q, want %s", given, got, want)
		}
	}
}

func TestCORS(t *testing.T) {
	for _, c := range []struct {
		origins []string
		allowed string
		status  int
	}{{nil, "", 405}, {[]string{"http://a.example"}, "http://a.example", 204}, {[]string{"*"}, "http://a.example", 204}, {[]string{"http://b.example"}, "", 405}} {
		r := newRig()
		r.cfg.Origins = c.origins
		r.build(t)
		req := httptest.NewRequestWithContext(t.Context(), "OPTIONS", chatPath, nil)
		req.Header.Set("Origin", "http://a.example")
		req.Header.Set("Access-Control-Request-Method", "POST")
		req.Header.Set("Access-Control-Request-Headers", "authorization")
		w := httptest.NewRecorder()
		r.srv.ServeHTTP(w, req)
		if got := w.Header().Get("Access-Control-Allow-Origin"); w.Code != c.status || got != c.allowed {
			t.Errorf("origins %v: got %d %q, want %d %q", c.origins, w.Code, got, c.status, c.allowed)
		}
	}
}

type modelList struct {
	Object string
	Data   []struct {
		ID, Object string
		Created    int64
		OwnedBy    string `json:"owned_by"`
		QR         struct {
			Ready                      bool
			State, Reason, Description string
			Context                    int
		}
	}
}

// Engines that are down must hold up neither the list nor the health of the process.
func TestModelsAndHealthWithDeadEngines(t *testing.T) {
	one, err := fake.New(fake.Config{Model: "one", Context: 100, Workers: 1, Description: "first"}, fake.Deps{})
	must(t, err)
	two, err := fake.New(fake.Config{Model: "two", Context: 200, Workers: 1}, fake.Deps{})
	must(t, err)
	r := newRig()
	r.models, r.direct = catalog{one, two}, &direct{}
	r.build(t)
	for _, c := range []struct{ one, two, status string }{{"", "", "ready"}, {"engine died", "", "ready"}, {"engine died", "no memory", "not ready"}} {
		one.SetDown(c.one)
		two.SetDown(c.two)
		models := decode[modelList](t, r.get("/v1/models").Body.Bytes())
		if len(models.Data) != 2 || models.Data[0].ID != "one" || models.Data[0].QR.Reason != c.one || models.Data[1].QR.Context != 200 {
			t.Errorf("got models %+v", models)
		}
		ready := r.get("/readyz")
		if want := map[string]int{"ready": 200, "not ready": 503}[c.status]; ready.Code != want || !strings.Contains(ready.Body.String(), `"status":"`+c.status+`"`) {
			t.Errorf("readyz: got %d %s, want %d", ready.Code, ready.Body, want)
		}
		if !strings.Contains(ready.Body.String(), c.two) {
			t.Errorf("readyz %s does not say %q", ready.Body, c.two)
		}
		if strings.Contains(r.logged.String(), "readyz") {
			t.Errorf("a probe is in the log: %s", r.logged)
		}
		if w := r.get("/healthz"); w.Code != 200 {
			t.Errorf("healthz: got %d", w.Code)
		}
	}
}

func TestParametersShowTheTable(t *testing.T) {
	r := newRig().build(t)
	type table struct {
		Data []struct{ Key, Help, Type string }
	}
	got := decode[table](t, r.get("/v1/qr/parameters").Body.Bytes())
	var want, have []string
	for _, f := range sampler.Fields() {
		want = append(want, f.Key+" "+string(f.Type)+" "+f.Help)
	}
	for _, p := range got.Data {
		have = append(have, p.Key+" "+p.Type+" "+p.Help)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
}

func TestPanics(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		r := newRig()
		r.do = doFunc(func(_ context.Context, _ dispatch.Job, sink dispatch.Sink) (*backends.Result, error) {
			sink.Queued(0, 0)
			panic("secret")
		})
		r.build(t)
		body := hello
		if streaming {
			body = strings.Replace(hello, "{", `{"stream":true,`, 1)
		}
		w := r.ask(chatPath, body)
		text := w.Body.String()
		if streaming {
			_, after, found := strings.Cut(text, "data: ")
			if text = after; !found || strings.Contains(text, "[DONE]") {
				t.Fatalf("stream is %q", w.Body)
			}
		} else if w.Code != 500 {
			t.Errorf("status is %d, want 500", w.Code)
		}
		message, code := envelope(t, []byte(text))
		if code != "internal_error" || !strings.Contains(message, w.Header().Get("X-Request-Id")) || strings.Contains(message, "secret") {
			t.Errorf("got %s: %s", code, message)
		}
		if !strings.Contains(r.logged.String(), "secret") {
			t.Error("the panic is not in the log")
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, spoil := range map[string]func(*gateway.Config){
		"body limit": func(c *gateway.Config) { c.BodyLimit = 0 }, "keep-alive": func(c *gateway.Config) { c.KeepAlive = 0 },
		"write timeout": func(c *gateway.Config) { c.WriteTimeout = -1 },
	} {
		cfg := gateway.DefaultConfig()
		spoil(&cfg)
		if _, err := gateway.New(cfg, gateway.Deps{Models: catalog{}, Dispatcher: &direct{}}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := gateway.New(gateway.DefaultConfig(), gateway.Deps{}); err == nil {
		t.Error("a server without models was built")
	}
}

func TestListenErrorNamesTheAddress(t *testing.T) {
	r := newRig()
	r.cfg.Listen = "256.0.0.1:http"
	if err := r.build(t).srv.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "256.0.0.1") {
		t.Errorf("got %v", err)
	}
}

func TestContentIsNeverLogged(t *testing.T) {
	r := newRig().build(t)
	w := r.ask(chatPath, `{"model":"fake","messages":[{"role":"user","content":"sesame"}]}`)
	if w.Code != http.StatusOK || !strings.Contains(r.logged.String(), "completion_tokens=") {
		t.Fatalf("got %d, log %s", w.Code, r.logged)
	}
	if strings.Contains(r.logged.String(), "sesame") {
		t.Errorf("the log shows the prompt: %s", r.logged)
	}
}
