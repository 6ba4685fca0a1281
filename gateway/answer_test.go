package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/gateway"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/records"
	"qr-gateway/sampler"
)

// usageQR is the part of a reply that tells how its tokens were chosen.
type usageQR struct {
	ID    string
	Model string
	Usage struct {
		QR struct{ Decoder, Task, Record string }
	}
}

// ask sends a request with headers.
func (r *rig) askAs(body string, header map[string]string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(body))
	for k, v := range header {
		req.Header.Set(k, v)
	}
	r.srv.ServeHTTP(w, req)
	return w
}

func newStore(t *testing.T, cfg records.Config) *records.Store {
	t.Helper()
	s, err := records.New(cfg)
	must(t, err)
	return s
}

func TestRecordOfAnAnswer(t *testing.T) {
	r := newRig()
	r.records = newStore(t, records.Config{Keep: 4, Bytes: 1 << 20})
	r.build(t)
	body := `{"model":"fake","qr_client":"c/1","qr_temperature":0.5,"messages":[{"role":"user","content":"hi"}],"seed":7}`
	w := r.askAs(body, map[string]string{"X-OpenWebUI-Chat-Id": "chat", "X-Request-Id": "req"})
	got := decode[usageQR](t, w.Body.Bytes())
	url := got.Usage.QR.Record
	if want := "http://example.com/v1/qr/records/" + got.ID; url != want {
		t.Fatalf("the record is at %q, want %q", url, want)
	}
	doc := decode[map[string]any](t, r.get(strings.TrimPrefix(url, "http://example.com")).Body.Bytes())
	want := map[string]any{
		"id": got.ID, "object": "qr.record", "model": "fake", "request_id": "req", "client": "c/1", "chat_id": "chat", "finish_reason": "stop",
		"params": map[string]any{"qr_temperature": 0.5, "qr_seed": 7.0, "qr_entropy_source": "system"},
	}
	for _, key := range []string{"created", "usage", "qr"} {
		if doc[key] == nil {
			t.Errorf("no %s", key)
		}
		delete(doc, key)
	}
	if diff := cmp.Diff(want, doc); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, part := range []string{"client=c/1", "chat_id=chat", "qr.temperature=0.5", "qr.seed=7"} {
		if !strings.Contains(r.logged.String(), part) {
			t.Errorf("the log has no %s: %s", part, r.logged)
		}
	}
}

func TestWhereRecordsAre(t *testing.T) {
	cases := []struct {
		name, public, proto, want string
		keep                      int
	}{
		{name: "as asked", keep: 1, want: "http://example.com/v1/qr/records/"},
		{name: "behind TLS", keep: 1, proto: "https", want: "https://example.com/v1/qr/records/"},
		{name: "behind two proxies", keep: 1, proto: "https, http", want: "https://example.com/v1/qr/records/"},
		{name: "as configured", keep: 1, public: "https://models.example.org/qr", want: "https://models.example.org/qr/v1/qr/records/"},
		{name: "none kept"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig()
			r.cfg.PublicURL = c.public
			r.records = newStore(t, records.Config{Keep: c.keep, Bytes: 1 << 20})
			r.build(t)
			got := decode[usageQR](t, r.askAs(hello, map[string]string{"X-Forwarded-Proto": c.proto}).Body.Bytes())
			if want := c.want; want == "" && got.Usage.QR.Record != "" || want != "" && got.Usage.QR.Record != want+got.ID {
				t.Errorf("the record is at %q, want %q", got.Usage.QR.Record, want)
			}
		})
	}
}

// TestRecordWithoutAnAddress: HTTP/1.0 needs no Host, and a link to nowhere is none.
func TestRecordWithoutAnAddress(t *testing.T) {
	r := newRig()
	r.records = newStore(t, records.Config{Keep: 1, Bytes: 1 << 20})
	r.build(t)
	req := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(hello))
	req.Host = ""
	w := httptest.NewRecorder()
	r.srv.ServeHTTP(w, req)
	got := decode[usageQR](t, w.Body.Bytes())
	if _, kept := r.records.Get(got.ID); got.Usage.QR.Record != "" || !kept {
		t.Errorf("the record is at %q, kept: %v", got.Usage.QR.Record, kept)
	}
}

func TestUnknownRecord(t *testing.T) {
	w := newRig().build(t).get("/v1/qr/records/none")
	if _, code := envelope(t, w.Body.Bytes()); w.Code != http.StatusNotFound || code != "record_not_found" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// TestTasks: what Open WebUI asks for itself gets plain decoding, and leaves no record behind.
func TestTasks(t *testing.T) {
	const title = `{"model":"fake","qr_alpha":0.5,"messages":[{"role":"user","content":"### Task:\nA title, please."}],"seed":7}`
	cases := []struct {
		name, body string
		header     map[string]string
		same       bool
		decoder    string
		task       string
	}{
		{name: "guessed", body: title, decoder: "plain", task: "guessed"},
		{name: "header", body: strings.Replace(title, "### Task:", "", 1), header: map[string]string{"X-OpenWebUI-Task": "emoji_generation"}, decoder: "plain", task: "emoji_generation"},
		{name: "alias", body: strings.Replace(title, `"fake"`, `"fake:task"`, 1), decoder: "plain", task: "alias"},
		{name: "a chat", body: strings.Replace(title, `{`, `{"qr_client":"c/1",`, 1), decoder: "lookahead"},
		{name: "as configured", body: title, same: true, decoder: "lookahead", task: "guessed"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig()
			r.cfg.PlainTasks = !c.same
			r.records = newStore(t, records.Config{Keep: 4, Bytes: 1 << 20})
			r.build(t)
			got := decode[usageQR](t, r.askAs(c.body, c.header).Body.Bytes())
			qr := got.Usage.QR
			if qr.Decoder != c.decoder || qr.Task != c.task || got.Model != "fake" {
				t.Errorf("got %+v", got)
			}
			if kept := qr.Record != ""; kept == (c.decoder == "plain") {
				t.Errorf("record %q", qr.Record)
			}
			if c.task != "" && !strings.Contains(r.logged.String(), "task="+c.task) {
				t.Errorf("the log has no task: %s", r.logged)
			}
		})
	}
}

// TestTasksEnd: a task that sets no limit has one all the same, and what people ask has none.
func TestTasksEnd(t *testing.T) {
	const body = `{"model":"fake","qr_task":"tags","messages":[{"role":"user","content":"hi"}]}`
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"task": {body, 3}, "with its own": {strings.Replace(body, `{`, `{"max_tokens":2,`, 1), 2},
		"chat": {strings.Replace(body, `"tags"`, `"none"`, 1), 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig()
			r.cfg.TaskTokens = 3
			r.build(t)
			got := decode[struct {
				Usage struct {
					N int `json:"completion_tokens"`
				}
			}](t, r.ask(chatPath, c.body).Body.Bytes()).Usage.N
			if c.want > 0 && got != c.want || c.want == 0 && got <= 3 {
				t.Errorf("%d tokens", got)
			}
		})
	}
}

func TestModelCards(t *testing.T) {
	r := newRig()
	r.cfg.TaskAliases = true
	r.cards = map[string]gateway.Card{"fake": {Name: "Words", Prompts: []string{"Begin a story about a lighthouse in the fog."}}}
	r.build(t)
	list := decode[struct {
		Data []struct {
			ID, Name string
			Info     *struct {
				Meta struct {
					Description  string
					Capabilities map[string]bool
					Prompts      []struct {
						Title   [2]string
						Content string
					} `json:"suggestion_prompts"`
				}
			}
		}
	}](t, r.get("/v1/models").Body.Bytes()).Data
	if len(list) != 2 || list[0].Name != "Words" || list[1].ID != "fake:task" || list[1].Name != "Words (tasks)" || list[1].Info != nil {
		t.Fatalf("got %+v", list)
	}
	m := list[0].Info.Meta
	if p := m.Prompts[0]; p.Title != [2]string{"Begin a story about a lighthouse", "in the fog."} || p.Content != "Begin a story about a lighthouse in the fog." {
		t.Errorf("prompts %q", m.Prompts)
	}
	if m.Description == "" || !m.Capabilities["usage"] || m.Capabilities["builtin_tools"] || m.Capabilities["vision"] {
		t.Errorf("meta %+v", m)
	}
	if w := r.get("/v1/models/fake:task"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"id":"fake:task"`) {
		t.Errorf("the alias: %d %s", w.Code, w.Body)
	}
	r2 := newRig()
	r2.cfg.ModelInfo = false
	if body := r2.build(t).get("/v1/models").Body.String(); strings.Contains(body, `"info"`) || !strings.Contains(body, `"name":"fake"`) {
		t.Errorf("without descriptions: %s", body)
	}
}

// TestNothingIsLost: what a reply leaves out because a record has it is in the reply where no record is kept.
func TestNothingIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		keep    int
		records bool
	}{"kept": {1, false}, "not kept": {0, true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig()
			r.do = doFunc(func(context.Context, dispatch.Job, dispatch.Sink) (*backends.Result, error) {
				return &backends.Result{Reason: "stop", Stats: backends.DecodeStats{Records: make([]sampler.Record, 2)}}, nil
			})
			r.records = newStore(t, records.Config{Keep: c.keep, Bytes: 1 << 20})
			r.build(t)
			body := r.ask(chatPath, strings.Replace(hello, `{`, `{"qr_client":"c/1",`, 1)).Body.String()
			if got := strings.Contains(body, `"records":[`); got != c.records {
				t.Errorf("records in the reply: %v, want %v", got, c.records)
			}
		})
	}
}
