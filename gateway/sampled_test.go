package gateway_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/backends/openai"
	"qr-gateway/backends/vllm"
	chosen "qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/vllmtest"
	"qr-gateway/gateway"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/node"
	"qr-gateway/gateway/queue/memory"
	"qr-gateway/gateway/records"
	"qr-gateway/gateway/route"
	"qr-gateway/sampler"
)

// distant is a gateway before servers of vLLM whose tokens a sidecar chooses.
type distant struct {
	http.Handler
	group    *route.Group
	far      []*vllmtest.Server
	side     *vllmtest.Sampler
	seen     *outcomes
	defaults sampler.Params
}

// Backend and List make the group the only model.
func (d *distant) Backend(id string) (backends.Backend, sampler.Params, bool) {
	return d.group, d.defaults, id == "far"
}

func (d *distant) List() []backends.Info { return []backends.Info{d.group.Info()} }

// distance puts the real parts before one server for each of o.
func distance(t *testing.T, o ...vllmtest.Options) *distant {
	t.Helper()
	d := &distant{side: vllmtest.NewSampler(), defaults: sampler.Defaults(), seen: &outcomes{one: make(chan struct{}, 64)}}
	var replicas []route.Replica
	for i, opts := range o {
		opts.Model = "there"
		far := vllmtest.NewServer(t, opts, d.side)
		c := vllm.DefaultConfig()
		c.Model, c.UpstreamModel, c.URL, c.ChoiceWait = "far", "there", far.URL, 50*time.Millisecond
		c.Health = openai.Health{Interval: 20 * time.Millisecond, Retry: 5 * time.Millisecond, Timeout: 5 * time.Second}
		b, err := vllm.New(c, vllm.Deps{Choices: d.side})
		must(t, err)
		d.far = append(d.far, far)
		replicas = append(replicas, route.Replica{Name: string(rune('a' + i)), Backend: b, Weight: 1, Workers: 4})
	}
	var err error
	d.group, err = route.New(route.DefaultConfig("far"), replicas, route.Deps{})
	must(t, err)
	q, err := memory.New(memory.DefaultConfig())
	must(t, err)
	disp, err := dispatch.New(dispatch.DefaultConfig(), dispatch.Deps{Queue: q})
	must(t, err)
	n, err := node.New(node.DefaultConfig(), []node.Model{{ID: "far", Backend: d.group, Workers: 4 * len(o)}}, node.Deps{Queue: q, Frames: node.Here(disp), Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	for _, run := range []func(context.Context) error{q.Run, n.Run, d.group.Run} {
		background(t, run)
	}
	store, err := records.New(records.Config{Keep: 10, Bytes: 1 << 20})
	must(t, err)
	d.Handler, err = gateway.New(gateway.DefaultConfig(), gateway.Deps{Models: d, Dispatcher: disp, Observer: d.seen, Records: store})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must(t, d.group.WaitReady(ctx))
	return d
}

// ending is what is read of the end of an answer.
type ending struct {
	ID    string
	Usage struct {
		Total int `json:"total_tokens"`
		QR    *struct {
			Decoder string
			Tokens  int
			Record  string
		}
	}
	QR *struct {
		Decoder       string
		EntropySource string `json:"entropy_source"`
		Tokens        int
		Native        int `json:"native_tokens"`
		Choices       []any
	}
}

// TestSampledAnswers holds what a client gets of an answer whose tokens were chosen here: whole, as a stream, and as a record.
func TestSampledAnswers(t *testing.T) {
	d := distance(t, vllmtest.Options{Plugin: true})
	for name, c := range map[string]struct {
		path, body string
		total      int
		usage      bool
		stream     bool
	}{
		"whole":         {chatPath, farChat + `,"qr_top_k":5}`, 9, true, false},
		"text":          {textPath, `{"model":"far","prompt":"a","vllm_xargs":{"qr_top_k":5}}`, 9, true, false},
		"stream":        {chatPath, farChat + `,"qr_top_k":5,"stream":true}`, 0, false, true},
		"stream, usage": {chatPath, farChat + `,"qr_top_k":5,"stream":true,"stream_options":{"include_usage":true}}`, 9, true, true},
		"choices":       {chatPath, farChat + `,"qr_top_k":5,"n":2}`, 15, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := send(d, c.path, c.body)
			if w.Code != http.StatusOK {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			last := w.Body.String()
			if c.stream {
				lines := rawLines(t, w)
				last = lines[len(lines)-2]
				for i, line := range lines {
					if has := strings.Contains(line, `"qr":`); has != (i == len(lines)-2) || strings.Contains(line, "token_ids") {
						t.Errorf("line %d of %d is %s", i, len(lines), line)
					}
				}
			}
			e := decode[ending](t, []byte(last))
			n := max(len(e.QR.Choices), 1)
			if e.QR == nil || e.QR.Decoder != "plain" || e.QR.Tokens != 6*n || e.QR.Native != 0 || e.Usage.Total != c.total || (e.Usage.QR != nil) != c.usage {
				t.Errorf("the end is %s", last)
			}
			out := d.seen.last(t)
			if out.Result == nil || out.Result.Usage.CompletionTokens != 6*n || out.Result.Stats.Tokens != 6*n {
				t.Errorf("outcome %+v", out)
			}
			w = httptest.NewRecorder()
			d.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/qr/records/"+e.ID, nil))
			rec := decode[struct {
				Params map[string]any
				QR     struct{ Tokens int }
			}](t, w.Body.Bytes())
			if w.Code != http.StatusOK || rec.Params["qr_top_k"] != 5.0 || rec.QR.Tokens != 6*n {
				t.Errorf("the record is %d %s", w.Code, w.Body)
			}
		})
	}
}

// TestSampledOrPlain holds which requests are sampled, and that those that are not go on as they are.
func TestSampledOrPlain(t *testing.T) {
	for name, c := range map[string]struct {
		more     string
		defaults map[string]any
		model    string
		sampled  bool
	}{
		"nothing":          {more: ``},
		"standard fields":  {more: `,"temperature":5,"top_k":-7,"seed":1`},
		"a parameter":      {more: `,"qr_temperature":0.5`, sampled: true},
		"nested":           {more: `,"extra_args":{"qr_temperature":0.5}`, sampled: true},
		"null":             {more: `,"qr_temperature":null`},
		"where from":       {more: `,"qr_client":"x"`},
		"defaults":         {defaults: map[string]any{"qr_temperature": 0.5}, sampled: true},
		"log level":        {defaults: map[string]any{"qr_log_level": "none"}},
		"a task":           {more: `,"qr_task":"title"`, defaults: map[string]any{"qr_temperature": 0.5}},
		"a task by alias":  {model: "far:task", more: `,"qr_top_k":3`},
		"bypass is chosen": {more: `,"qr_bypass":true`, sampled: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := distance(t, vllmtest.Options{Plugin: true})
			d.defaults.Lay(c.defaults)
			body := farChat + c.more + "}"
			if c.model != "" {
				body = strings.Replace(body, `"far"`, `"`+c.model+`"`, 1)
			}
			w := send(d, chatPath, body)
			if w.Code != http.StatusOK {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			got := d.far[0].Bodies()[0]
			if strings.Contains(got, "qr_rid") != c.sampled || strings.Contains(w.Body.String(), `"qr":`) != c.sampled {
				t.Errorf("the server got %s\nthe client %s", got, w.Body)
			}
			if c.sampled {
				return
			}
			want, _ := numbers(t, strings.Replace(body, `"far`, `"there`, 1)).(map[string]any)
			for _, key := range []string{"qr_task", "qr_client", "qr_temperature", "qr_top_k"} {
				delete(want, key)
			}
			want["model"] = "there"
			if diff := cmp.Diff(any(want), numbers(t, got)); diff != "" {
				t.Errorf("the server got (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSampledRefusals holds that parameters are judged as those of any other model are.
func TestSampledRefusals(t *testing.T) {
	d := distance(t, vllmtest.Options{Plugin: true})
	for name, c := range map[string]struct{ more, param, code string }{
		"unknown":        {`,"qr_temprature":1`, "qr_temprature", "invalid_value"},
		"out of range":   {`,"qr_top_p":3`, "qr_top_p", "invalid_value"},
		"standard field": {`,"qr_top_k":1,"temperature":50`, "temperature", "invalid_value"},
		"twice":          {`,"qr_top_k":1,"extra_body":{"qr_top_k":2}`, "qr_top_k", "invalid_value"},
		"no such source": {`,"qr_entropy_source":"moon"`, "qr_entropy_source", "invalid_value"},
		"look-ahead":     {`,"qr_alpha":0.5`, "qr_decoder", "unsupported_parameter"},
		"messages":       {`,"messages":[]`, "messages", "invalid_value"},
		"no reasoning":   {`,"qr_top_k":1,"include_reasoning":false`, "include_reasoning", "unsupported_parameter"},
	} {
		w := send(d, chatPath, farChat+c.more+"}")
		var e struct{ Error struct{ Param, Code string } }
		must(t, json.Unmarshal(w.Body.Bytes(), &e))
		if w.Code != http.StatusBadRequest || e.Error.Param != c.param || e.Error.Code != c.code {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if n := len(d.far[0].Bodies()); n != 0 {
		t.Errorf("%d requests went on", n)
	}
}

// TestSampledFails holds the form of errors: before the first token a status, after it the last event and no end.
func TestSampledFails(t *testing.T) {
	d := distance(t, vllmtest.Options{Plugin: true})
	why := &backends.Error{Kind: backends.KindEntropy, Code: "entropy_unavailable", Param: "qr_entropy_source", Message: "device unplugged"}
	stop := func(at int) func(string, int) vllmtest.Move {
		return func(_ string, step int) vllmtest.Move {
			if step == at {
				return vllmtest.Move{Status: chosen.Stop, Err: why}
			}
			return vllmtest.Move{}
		}
	}
	d.side.Script(stop(0))
	w := send(d, chatPath, farChat+`,"qr_top_k":5}`)
	if message, code := envelope(t, w.Body.Bytes()); w.Code != http.StatusServiceUnavailable || code != "entropy_unavailable" || message != why.Message {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	d.side.Script(stop(3))
	lines := rawLines(t, send(d, chatPath, farChat+`,"qr_top_k":5,"stream":true}`))
	if _, code := envelope(t, []byte(lines[len(lines)-1])); code != "entropy_unavailable" || !strings.Contains(strings.Join(lines, ""), " t") || strings.Contains(strings.Join(lines, ""), "[DONE]") {
		t.Errorf("stream is %q", lines)
	}
	if out := d.seen.last(t); out.Status != http.StatusServiceUnavailable || out.Code != "entropy_unavailable" {
		t.Errorf("outcome %+v", out)
	}
}

// TestSampledUnnamed holds that tokens that the server doesn't name are nothing that others have to wait for.
func TestSampledUnnamed(t *testing.T) {
	d := distance(t, vllmtest.Options{Plugin: true})
	d.far[0].Set(func(o *vllmtest.Options) { o.NoIDs = true })
	for range 2 * route.DefaultConfig("far").Breaker.Failures {
		w := send(d, chatPath, farChat+`,"qr_top_k":5}`)
		if _, code := envelope(t, w.Body.Bytes()); w.Code != http.StatusServiceUnavailable || code != "sampler_unavailable" {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
	}
	if s := d.group.Stats()[0]; s.Breaker != "closed" || s.Failures != 0 {
		t.Errorf("the server is %+v", s)
	}
	if w := send(d, chatPath, farChat+`}`); w.Code != http.StatusOK {
		t.Errorf("a plain request got %d %s", w.Code, w.Body)
	}
}

// TestSampledByNobody holds that a request whose first token nobody chose is refused with the reason, and not tried for ever.
func TestSampledByNobody(t *testing.T) {
	d := distance(t, vllmtest.Options{Plugin: true})
	d.side.Script(func(string, int) vllmtest.Move { return vllmtest.Move{Unsaid: true} })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	w := httptest.NewRecorder()
	d.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, chatPath, strings.NewReader(farChat+`,"qr_top_k":5}`)))
	if message, code := envelope(t, w.Body.Bytes()); w.Code != http.StatusServiceUnavailable || code != "sampler_unavailable" || !strings.Contains(message, "not heard of by the sidecar") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if n := len(d.far[0].Bodies()); n != 1 {
		t.Errorf("the server got %d requests", n)
	}
}

// TestSampledReplicas holds that requests with parameters go to the server with the plugin alone, others to both, and that without any such server
// they are refused by name.
func TestSampledReplicas(t *testing.T) {
	d := distance(t, vllmtest.Options{}, vllmtest.Options{Plugin: true})
	ready := time.After(10 * time.Second)
	for i := d.group.Info(); i.Unsampled != "" || len(i.Replicas) != 2 || !i.Replicas[0].Ready; i = d.group.Info() {
		select {
		case <-ready:
			t.Fatalf("it is %+v", i)
		case <-time.After(time.Millisecond):
		}
	}
	for i := range 8 {
		body := strings.Replace(farChat, "<hi>", string(rune('a'+i)), 1)
		if w := send(d, chatPath, body+`,"qr_top_k":5}`); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"replica":"b"`) {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
	}
	if a := len(d.far[0].Bodies()); a != 0 {
		t.Errorf("%d went to the server without the plugin", a)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/models/far", nil))
	if m := decode[struct {
		QR struct {
			Raw, Parameters bool
			Unsampled       string
			Replicas        []struct{ Unsampled string }
		}
	}](t, w.Body.Bytes()); !m.QR.Raw || !m.QR.Parameters || m.QR.Unsampled != "" || m.QR.Replicas[0].Unsampled == "" || m.QR.Replicas[1].Unsampled != "" {
		t.Errorf("listed as %s", w.Body)
	}
	d.far[1].Set(func(o *vllmtest.Options) { o.Plugin = false })
	d.side.Restart("")
	for d.group.Info().Unsampled == "" {
		select {
		case <-ready:
			t.Fatalf("it is %+v", d.group.Info())
		case <-time.After(time.Millisecond):
		}
	}
	w = send(d, chatPath, farChat+`,"qr_top_k":5}`)
	if message, code := envelope(t, w.Body.Bytes()); w.Code != http.StatusServiceUnavailable || code != "sampler_unavailable" || !strings.Contains(message, "--logits-processors") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if w := send(d, chatPath, farChat+`}`); w.Code != http.StatusOK {
		t.Errorf("a plain request got %d %s", w.Code, w.Body)
	}
}
