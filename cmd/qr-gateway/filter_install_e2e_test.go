package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/sampler"
)

// page is a running Open WebUI of a fresh database, and its administrator.
type page struct {
	url   string
	token string
	log   *tail
}

const (
	pageEmail    = "admin@example.org"
	pagePassword = "a password for tests"
)

// startPage runs the Open WebUI of a Python environment, with a connection to the gateway.
func startPage(t *testing.T, venv, gateway string) *page {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	l.Close()
	p := &page{url: "http://" + addr.String(), log: newTail()}
	cmd := exec.Command(filepath.Join(venv, "bin/open-webui"), "serve", "--host", "127.0.0.1", "--port", fmt.Sprint(addr.Port))
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(),
		"DATA_DIR="+cmd.Dir, "WEBUI_SECRET_KEY="+strings.Repeat("0123456789", 4), "OFFLINE_MODE=true", "HF_HUB_OFFLINE=1", "RAG_EMBEDDING_ENGINE=openai",
		"ENABLE_OLLAMA_API=False", "ENABLE_PERSISTENT_CONFIG=False", "ENABLE_VERSION_UPDATE_CHECK=False",
		"OPENAI_API_BASE_URLS="+gateway+"/v1", "OPENAI_API_KEYS=none", "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1",
		"WEBUI_ADMIN_EMAIL="+pageEmail, "WEBUI_ADMIN_PASSWORD="+pagePassword, "WEBUI_ADMIN_NAME=Ada")
	p.run(t, cmd)
	p.await(t)
	p.token = p.signIn(t, pageEmail, pagePassword)
	return p
}

func (p *page) run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var wg sync.WaitGroup
	wg.Go(func() { p.log.follow(r) })
	ended := make(chan struct{})
	wg.Go(func() { _ = cmd.Wait(); close(ended) }) // it is ended by a signal
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
		}
		wg.Wait()
		r.Close()
		if t.Failed() {
			t.Logf("log of Open WebUI:\n%s", p.log)
		}
	})
}

// await asks until it is ready: it says so nowhere else.
func (p *page) await(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/health", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("Open WebUI did not start\n%s", p.log)
		}
	}
}

// ask does one call and reads the answer into out, unless that is nil.
func (p *page) ask(t *testing.T, token, method, path string, in, out any) {
	t.Helper()
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, p.url+path, &body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: status %d, %v: %s", method, path, res.StatusCode, err, b)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			t.Fatalf("%s %s: %v: %s", method, path, err, b)
		}
	}
}

func (p *page) signIn(t *testing.T, email, password string) string {
	t.Helper()
	var said struct{ Token string }
	p.ask(t, "", http.MethodPost, "/api/v1/auths/signin", map[string]string{"email": email, "password": password}, &said)
	return said.Token
}

// filter runs a subcommand of `filter` on it and returns the status, what it said after the first line, and its error.
func (p *page) filter(t *testing.T, args ...string) (status int, said, failed string) {
	t.Helper()
	var out, errOut bytes.Buffer
	status = run(t.Context(), append([]string{"filter", args[0], "--url", p.url}, args[1:]...), &out, &errOut)
	_, said, _ = strings.Cut(out.String(), "\n")
	if strings.Contains(out.String()+errOut.String(), p.token) {
		t.Errorf("the token is shown: %s %s", &out, &errOut)
	}
	return status, said, errOut.String()
}

// TestInstallOnOpenWebUI installs on the real ones whose environments QR_TEST_OPENWEBUI lists, as make e2e-openwebui does.
func TestInstallOnOpenWebUI(t *testing.T) {
	venvs := filepath.SplitList(os.Getenv("QR_TEST_OPENWEBUI"))
	if len(venvs) == 0 {
		t.Skip("QR_TEST_OPENWEBUI is not set: run this through make e2e-openwebui")
	}
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	err := os.WriteFile(file, []byte(`
log: {level: info, format: json}
models:
  - {id: words, backend: fake, name: Just Words, description: Words without a model., prompts: [Begin a story about a lighthouse.]}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, venv := range venvs {
		t.Run(filepath.Base(venv), func(t *testing.T) {
			gateway := start(t, file)
			p := startPage(t, venv, gateway.url)
			t.Setenv("OPENWEBUI_TOKEN", p.token)
			p.installs(t)
			p.usersSee(t, gateway)
			p.keepsValves(t)
			p.mends(t)
			p.refusesOthers(t)
			p.uninstalls(t)
		})
	}
}

var everything = []string{"install", "--models", "--public", "--controls", "--valve", "qr_decoder=lookahead", "--valve", "qr_alpha=0.4"}

func (p *page) installs(t *testing.T) {
	t.Helper()
	_, dry, _ := p.filter(t, append(everything, "--dry-run")...)
	status, said, failed := p.filter(t, everything...)
	if status != 0 || !strings.HasSuffix(dry, said) {
		t.Fatalf("install: status %d, %s said\n%s\nand the dry run\n%s", status, failed, said, dry)
	}
	for _, want := range []string{
		": created 1.", ", activated, made global\n", "valves: qr_alpha=0.4, qr_decoder=\"lookahead\"\n", "model words: card created, opened to all users\n",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("install said\n%s\nwithout %q", said, want)
		}
	}
	var f struct {
		Active bool `json:"is_active"`
		Global bool `json:"is_global"`
	}
	p.ask(t, p.token, http.MethodGet, "/api/v1/functions/id/qr_gateway_filter", nil, &f)
	if !f.Active || !f.Global {
		t.Errorf("active %v, global %v; want both", f.Active, f.Global)
	}
	var is struct{ Version string }
	p.ask(t, p.token, http.MethodGet, "/api/version", nil, &is)
	slider := !strings.HasPrefix(is.Version, "0.11.")
	if none := strings.Contains(said, "slider: not in this version"); none == slider {
		t.Errorf("Open WebUI %s, and install said\n%s", is.Version, said)
	}
	p.hasCard(t, slider)
	_, again, _ := p.filter(t, everything...)
	if strings.Count(again, ": unchanged\n") < 3 || strings.Contains(again, "created") || strings.Contains(again, "updated") {
		t.Errorf("a second run said\n%s", again)
	}
}

func (p *page) hasCard(t *testing.T, slider bool) {
	t.Helper()
	var m struct {
		Name string
		Meta struct {
			Description  string
			Capabilities map[string]bool
			Prompts      []any `json:"suggestion_prompts"`
		}
		Params map[string]any
	}
	p.ask(t, p.token, http.MethodGet, "/api/v1/models/model?id=words", nil, &m)
	if m.Name != "Just Words" || m.Meta.Description != "Words without a model." || m.Meta.Capabilities["builtin_tools"] || !m.Meta.Capabilities["usage"] || len(m.Meta.Prompts) != 1 {
		t.Errorf("the card is %+v", m)
	}
	if _, has := m.Params["model_controls"]; has != slider || len(m.Params) > 1 {
		t.Errorf("parameters of the card are %v; a slider: %v", m.Params, slider)
	}
}

// usersSee checks that somebody without rights has the model, and that the valves reach the gateway.
func (p *page) usersSee(t *testing.T, gateway *server) {
	t.Helper()
	p.ask(t, p.token, http.MethodPost, "/api/v1/auths/add", map[string]string{"name": "Bob", "email": "bob@example.org", "password": pagePassword, "role": "user"}, nil)
	bob := p.signIn(t, "bob@example.org", pagePassword)
	var list struct{ Data []struct{ ID, Name string } }
	p.ask(t, bob, http.MethodGet, "/api/models", nil, &list)
	if len(list.Data) != 1 || list.Data[0].Name != "Just Words" {
		t.Errorf("a user sees %+v", list.Data)
	}
	p.ask(t, bob, http.MethodPost, "/api/chat/completions", map[string]any{
		"model": "words", "stream": false, "messages": []any{map[string]any{"role": "user", "content": "Hello."}},
	}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := gateway.log.wait(ctx, regexp.MustCompile(`"client":"open-webui-filter/[^"]*".*"qr":\{"decoder":"lookahead","alpha":0\.4\}`)); err != nil {
		t.Errorf("%v\n%s", err, gateway.log)
	}
}

// keepsValves sets one on the page and another by a second installation.
func (p *page) keepsValves(t *testing.T) {
	t.Helper()
	var spec struct{ Properties map[string]any }
	p.ask(t, p.token, http.MethodGet, "/api/v1/functions/id/qr_gateway_filter/valves/spec", nil, &spec)
	want := []string{"enabled", "priority", "models", "status", "warnings", "users_may_override"}
	for _, f := range sampler.Fields() {
		if f.PerRequest {
			want = append(want, f.Key)
		}
	}
	for _, key := range slices.DeleteFunc(want, func(k string) bool { _, ok := spec.Properties[k]; return ok }) {
		t.Errorf("the page has no valve %s, which install takes", key)
	}
	p.ask(t, p.token, http.MethodPost, "/api/v1/functions/id/qr_gateway_filter/valves/update", map[string]any{"qr_decoder": "plain", "qr_top_k": 40}, nil)
	if _, said, failed := p.filter(t, "install", "--valve", "qr_alpha=0.5", "--valve", "qr_bypass=no", "--valve", "status=true", "--valve", "qr_decoder="); failed != "" {
		t.Errorf("install said %s %s", said, failed)
	}
	var got map[string]any
	p.ask(t, p.token, http.MethodGet, "/api/v1/functions/id/qr_gateway_filter/valves", nil, &got)
	if d := cmp.Diff(map[string]any{"qr_alpha": 0.5, "qr_bypass": "off", "status": true, "qr_top_k": 40.0}, got); d != "" {
		t.Errorf("the valves differ (-want +got):\n%s", d)
	}
}

// mends changes the code, a switch and the card by hand: the first two are put right, the third stays until it is forced.
func (p *page) mends(t *testing.T) {
	t.Helper()
	const function = "/api/v1/functions/id/qr_gateway_filter"
	var f, m map[string]any
	p.ask(t, p.token, http.MethodGet, function, nil, &f)
	f["content"] = f["content"].(string) + "\n# changed by hand\n"
	p.ask(t, p.token, http.MethodPost, function+"/update", f, nil)
	p.ask(t, p.token, http.MethodPost, function+"/toggle", nil, nil)
	p.ask(t, p.token, http.MethodGet, "/api/v1/models/model?id=words", nil, &m)
	m["meta"].(map[string]any)["description"] = "By hand."
	p.ask(t, p.token, http.MethodPost, "/api/v1/models/model/update", m, nil)
	_, said, failed := p.filter(t, "install", "--models")
	want := regexp.MustCompile(`^filter qr_gateway_filter: updated 1\.[0-9.]+, activated\nmodel words: unchanged; kept as changed by hand: description\n$`)
	if !want.MatchString(said) {
		t.Errorf("install said %s\n%s", failed, said)
	}
	_, said, failed = p.filter(t, "install", "--models", "--force")
	if said != "filter qr_gateway_filter: unchanged\nmodel words: card updated (description)\n" {
		t.Errorf("install --force said %s\n%s", failed, said)
	}
}

func (p *page) refusesOthers(t *testing.T) {
	t.Helper()
	for want, token := range map[string]string{`Bob has the role "user"`: p.signIn(t, "bob@example.org", pagePassword), "refused the token": "nonsense"} {
		if status, said, failed := p.filter(t, "install", "--token", token); status != 1 || said != "" || !strings.Contains(failed, want) || !strings.Contains(failed, "hint: ") {
			t.Errorf("status %d, said %q, failed %q; want %q", status, said, failed, want)
		}
	}
}

func (p *page) uninstalls(t *testing.T) {
	t.Helper()
	const removed = "filter qr_gateway_filter: removed, with its valves\nmodel words: card removed\n"
	if status, said, failed := p.filter(t, "uninstall", "--email", pageEmail, "--password", pagePassword); status != 0 || said != removed {
		t.Errorf("uninstall: status %d, %s said\n%s", status, failed, said)
	}
	for _, path := range []string{"/api/v1/functions/", "/api/v1/models/base"} {
		var left []any
		if p.ask(t, p.token, http.MethodGet, path, nil, &left); len(left) > 0 {
			t.Errorf("%s still has %v", path, left)
		}
	}
	if status, said, _ := p.filter(t, "uninstall"); status != 0 || said != "filter qr_gateway_filter: unchanged\n" {
		t.Errorf("again: status %d, said %s", status, said)
	}
}
