package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
	"qr-gateway/gateway"
	"qr-gateway/gateway/route"
	"qr-gateway/sampler"
)

// TestAliases holds that a request by another name is one to the model.
func TestAliases(t *testing.T) {
	r := newRig()
	r.cards = map[string]gateway.Card{"fake": {Aliases: []string{"gpt-4o-mini", "fake:latest"}}}
	r.build(t)
	type reply struct {
		Model string
		Usage struct {
			QR struct{ Task string } `json:"qr"`
		}
	}
	for named, task := range map[string]string{"fake": "", "gpt-4o-mini": "", "fake:latest": "", "gpt-4o-mini:task": "alias", "fake:latest:task": "alias"} {
		w := r.ask("/v1/completions", `{"model":"`+named+`","prompt":"hello","max_tokens":3}`)
		got := decode[reply](t, w.Body.Bytes())
		if w.Code != http.StatusOK || got.Model != "fake" || got.Usage.QR.Task != task {
			t.Errorf("%s: %d %s", named, w.Code, w.Body)
		}
		id := "fake"
		if task != "" {
			id = "fake:task"
		}
		if w := r.get("/v1/models/" + named); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"id":"`+id+`"`) {
			t.Errorf("model %s: %d %s", named, w.Code, w.Body)
		}
	}
	if w := r.ask("/v1/completions", `{"model":"gpt-4","prompt":"hello"}`); w.Code != http.StatusNotFound {
		t.Errorf("another name: %d %s", w.Code, w.Body)
	}
	type entry struct {
		ID string
		QR struct{ Aliases []string } `json:"qr"`
	}
	list := decode[struct{ Data []entry }](t, r.get("/v1/models").Body.Bytes()).Data
	if len(list) != 1 || cmp.Diff([]string{"gpt-4o-mini", "fake:latest"}, list[0].QR.Aliases) != "" {
		t.Errorf("the list has %+v", list)
	}
}

// grouped serves one model by a group.
type grouped struct{ *route.Group }

func (g grouped) Backend(id string) (backends.Backend, sampler.Params, bool) {
	return g.Group, sampler.Defaults(), id == "fake"
}

func (g grouped) List() []backends.Info { return []backends.Info{g.Info()} }

// TestDeadReplicas holds that the model list shows what is wrong with each replica, from memory.
func TestDeadReplicas(t *testing.T) {
	var replicas []route.Replica
	for _, name := range []string{"near", "far"} {
		m, err := fake.New(fake.DefaultConfig(), fake.Deps{})
		must(t, err)
		m.SetDown("no route to " + name)
		replicas = append(replicas, route.Replica{Name: name, Backend: m, Weight: 1, Workers: 4})
	}
	group, err := route.New(route.DefaultConfig("fake"), replicas, route.Deps{})
	must(t, err)
	r := newRig()
	srv, err := gateway.New(r.cfg, gateway.Deps{Models: grouped{group}, Dispatcher: doFunc(nil)})
	must(t, err)
	r.srv = srv
	began := time.Now()
	w := r.get("/v1/models")
	if d := time.Since(began); d > 50*time.Millisecond {
		t.Errorf("the list took %s", d)
	}
	type state struct {
		Name, State, Reason string
		Ready               bool
		InFlight            int `json:"in_flight"`
		Workers             int
	}
	type entry struct {
		QR struct {
			Ready         bool
			State, Reason string
			Workers       int
			Replicas      []state
		} `json:"qr"`
	}
	got := decode[struct{ Data []entry }](t, w.Body.Bytes()).Data[0].QR
	want := []state{
		{Name: "near", State: "failed", Reason: "no route to near", Workers: 4},
		{Name: "far", State: "failed", Reason: "no route to far", Workers: 4},
	}
	if diff := cmp.Diff(want, got.Replicas); diff != "" || got.Ready || got.Reason == "" || got.Workers != 8 {
		t.Errorf("%+v\nreplicas (-want +got):\n%s", got, diff)
	}
	if w := r.get("/readyz"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("readyz: %d", w.Code)
	}
}
