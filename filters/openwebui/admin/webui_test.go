package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const adminToken = "the-token-of-an-administrator"

// webui is Open WebUI as far as the installer uses it: what it keeps, and how it refuses. The real one is installed on in cmd/qr-gateway.
type webui struct {
	t *testing.T

	mu        sync.Mutex // guards the rest
	functions map[string]*Function
	valves    map[string]Valves
	known     []string // valves of the filter's class
	models    map[string]*model
	upstream  []map[string]any // what connections list
	controls  bool             // as from 0.12
	off       bool             // ENABLE_PLUGINS is
	writes    []string         // calls that change something
	fail      map[string]func(http.ResponseWriter)
}

func newWebUI(t *testing.T) (*webui, *Client) {
	t.Helper()
	w := &webui{
		t: t, functions: map[string]*Function{}, valves: map[string]Valves{}, models: map[string]*model{}, controls: true,
		known: []string{"qr_alpha", "qr_decoder", "qr_seed", "qr_bypass", "priority", "status"}, fail: map[string]func(http.ResponseWriter){},
	}
	s := httptest.NewServer(w)
	t.Cleanup(s.Close)
	return w, client(t, s.URL, adminToken)
}

func client(t *testing.T, url, token string) *Client {
	t.Helper()
	c, err := New(Options{URL: url, Token: token, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// answerWith has a call answered otherwise; nil is as before.
func (w *webui) answerWith(call string, with func(http.ResponseWriter)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail[call] = with
}

// refusal is how it says no.
type refusal struct {
	status int
	detail string
}

func missing() refusal {
	return refusal{http.StatusUnauthorized, "We could not find what you're looking for :/"}
}

func (w *webui) ServeHTTP(res http.ResponseWriter, req *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	call := req.Method + " " + req.URL.Path
	if broken := w.fail[call]; broken != nil {
		broken(res)
		return
	}
	if req.URL.Path != "/api/version" && req.Header.Get("Authorization") != "Bearer "+adminToken {
		answer(res, refusal{http.StatusUnauthorized, "Your session has expired or the token is invalid. Please sign in again."})
		return
	}
	var body map[string]json.RawMessage
	_ = json.NewDecoder(req.Body).Decode(&body) // GET has none
	if req.Method != http.MethodGet {
		w.writes = append(w.writes, call)
	}
	if rest, ok := strings.CutPrefix(req.URL.Path, "/api/v1/functions/"); ok {
		answer(res, w.function(rest, body))
		return
	}
	answer(res, w.other(req, body))
}

func answer(res http.ResponseWriter, said any) {
	res.Header().Set("Content-Type", "application/json")
	if no, ok := said.(refusal); ok {
		res.WriteHeader(no.status)
		said = map[string]any{"detail": no.detail}
	}
	_ = json.NewEncoder(res).Encode(said) // a client that left is of no interest
}

func (w *webui) function(path string, body map[string]json.RawMessage) any {
	switch path {
	case "list":
		out := []*Function{}
		for _, f := range w.functions {
			if !w.off {
				out = append(out, f)
			}
		}
		return out
	case "create":
		return w.create(body)
	}
	id, end, _ := strings.Cut(strings.TrimPrefix(path, "id/"), "/")
	f := w.functions[id]
	if f == nil {
		return missing()
	}
	switch end {
	case "update":
		*f = Function{ID: id, Name: text(body["name"]), Content: text(body["content"]), Active: f.Active, Global: f.Global, Meta: meta(body)}
	case "toggle":
		f.Active = !f.Active
	case "toggle/global":
		f.Global = !f.Global
	case "delete":
		delete(w.functions, id)
		delete(w.valves, id)
		return true
	case "valves":
		return w.valves[id]
	case "valves/update":
		return w.setValves(id, body)
	}
	return f
}

func (w *webui) create(body map[string]json.RawMessage) any {
	id := text(body["id"])
	switch {
	case w.off:
		return refusal{http.StatusBadRequest, "[ERROR: Error creating function]"}
	case w.functions[id] != nil:
		return refusal{http.StatusBadRequest, "Uh-oh! This id is already taken."}
	case !strings.Contains(text(body["content"]), "class Filter"):
		return refusal{http.StatusBadRequest, "[ERROR: Error creating function]"}
	}
	w.functions[id] = &Function{ID: id, Name: text(body["name"]), Content: text(body["content"]), Meta: meta(body)}
	return w.functions[id]
}

// setValves drops what the class does not have, and nulls, without a word.
func (w *webui) setValves(id string, body map[string]json.RawMessage) any {
	kept := Valves{}
	for _, key := range w.known {
		if v, ok := body[key]; ok && string(v) != "null" {
			kept[key] = v
		}
	}
	if string(kept["qr_alpha"]) == `"broken"` {
		return refusal{http.StatusBadRequest, "[ERROR: 1 validation error for Valves qr_alpha]"}
	}
	w.valves[id] = kept
	return kept
}

func meta(body map[string]json.RawMessage) (m FunctionMeta) {
	_ = json.Unmarshal(body["meta"], &m) // as sent by the client under test
	return m
}

func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s) // as sent by the client under test
	return s
}

func (w *webui) other(req *http.Request, body map[string]json.RawMessage) any {
	switch req.URL.Path {
	case "/api/version":
		return map[string]any{"version": "0.12.4"}
	case "/api/config":
		return map[string]any{"features": map[string]any{"auth": true, "enable_plugins": !w.off}}
	case "/api/v1/auths/":
		return map[string]any{"name": "Ada", "role": "admin"}
	case "/api/models":
		return map[string]any{"data": w.upstream}
	case "/api/v1/models/base":
		out := []*model{}
		for _, m := range w.models {
			out = append(out, m)
		}
		return out
	}
	m := w.models[text(body["id"])]
	switch req.Method + " " + req.URL.Path {
	case "GET /api/v1/models/model":
		m = w.models[req.URL.Query().Get("id")]
		if m == nil {
			return refusal{http.StatusNotFound, missing().detail}
		}
		return m
	case "POST /api/v1/models/create":
		return w.writeModel(&model{ID: text(body["id"])}, body)
	case "POST /api/v1/models/model/update":
		if strings.Contains(string(body["params"]), `"options":{}`) && w.controls {
			return refusal{http.StatusUnprocessableEntity, "options: Dictionary should have at least 1 item"}
		}
		if m == nil {
			return missing()
		}
		return w.writeModel(m, body)
	case "POST /api/v1/models/model/access/update":
		m.Grants = nil
		_ = json.Unmarshal(body["access_grants"], &m.Grants) // as sent by the client under test
		return m
	case "POST /api/v1/models/model/delete":
		delete(w.models, m.ID)
		return true
	}
	return refusal{http.StatusNotFound, "Not Found"}
}

func (w *webui) writeModel(m *model, body map[string]json.RawMessage) any {
	m.Name, m.Meta = text(body["name"]), object(body["meta"])
	controls := m.Params["model_controls"]
	m.Params = object(body["params"])
	if _, sent := m.Params["model_controls"]; !sent && controls != nil {
		m.Params["model_controls"] = controls // what is left out is taken for unchanged
	}
	w.models[m.ID] = m
	return m
}

// serve lists a model of a gateway.
func (w *webui) serve(id string, qr any, meta map[string]any) {
	w.upstream = append(w.upstream, map[string]any{
		"id": id, "name": id, "owned_by": "openai", "openai": map[string]any{"id": id, "name": "A " + id, "qr": qr, "info": map[string]any{"meta": meta}},
	})
}
