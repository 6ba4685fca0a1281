package admin

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func filter(version string) Function {
	return Function{
		ID: "qr_gateway_filter", Name: "qr-gateway", Content: "class Filter: # " + version,
		Meta: FunctionMeta{Description: "what it does", Manifest: map[string]any{"version": version}},
	}
}

func valves(t *testing.T, texts ...string) Valves {
	t.Helper()
	v, err := ParseValves(texts)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// install does one and returns what was said, a line for each thing.
func install(t *testing.T, c *Client, in Installation) []string {
	t.Helper()
	if in.Function.ID == "" {
		in.Function = filter("1.0.0")
	}
	report, err := c.Install(t.Context(), &in)
	if err != nil {
		t.Fatal(err)
	}
	return lines(report)
}

func lines(report Report) []string {
	var out []string
	for _, s := range report {
		line := s.Thing + ": " + strings.Join(s.Did, ", ")
		if len(s.Kept) > 0 {
			line += " kept " + strings.Join(s.Kept, ", ")
		}
		out = append(out, line+s.Note)
	}
	return out
}

func said(t *testing.T, got []string, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the report differs (-want +got):\n%s", d)
	}
}

func TestInstallTwiceIsOnce(t *testing.T) {
	w, c := newWebUI(t)
	in := Installation{Valves: valves(t, "qr_alpha=0.4", "qr_bypass=no", "priority=3")}
	said(t, install(t, c, in), "filter qr_gateway_filter: created 1.0.0, activated, made global", `valves: priority=3, qr_alpha=0.4, qr_bypass="off"`)
	f := w.functions["qr_gateway_filter"]
	if !f.Active || !f.Global {
		t.Fatalf("active %v, global %v; want both", f.Active, f.Global)
	}
	w.writes = nil
	said(t, install(t, c, in), "filter qr_gateway_filter: ", "valves: ")
	if len(w.writes) > 0 {
		t.Errorf("the second run wrote: %v", w.writes)
	}
}

func TestInstallUpdatesAndKeepsWhatWasSetByHand(t *testing.T) {
	w, c := newWebUI(t)
	install(t, c, Installation{})
	w.valves["qr_gateway_filter"] = Valves{"qr_seed": json.RawMessage("9007199254740993"), "qr_alpha": json.RawMessage("0.1")}
	w.functions["qr_gateway_filter"].Global = false
	got := install(t, c, Installation{Function: filter("1.1.0"), Valves: valves(t, "qr_alpha=", "qr_decoder=plain")})
	said(t, got, "filter qr_gateway_filter: updated 1.0.0 to 1.1.0, made global", `valves: qr_decoder="plain", qr_alpha unset`)
	want := Valves{"qr_seed": json.RawMessage("9007199254740993"), "qr_decoder": json.RawMessage(`"plain"`)}
	if d := cmp.Diff(want, w.valves["qr_gateway_filter"]); d != "" {
		t.Errorf("valves differ (-want +got):\n%s", d)
	}
}

func TestDryRunWritesNothing(t *testing.T) {
	w, c := newWebUI(t)
	w.serve("m", map[string]any{"ready": true}, map[string]any{"description": "d"})
	in := Installation{Valves: valves(t, "qr_alpha=0.4"), Models: true, Cards: Cards{Public: true}, DryRun: true, ResetValves: true}
	said(t, install(t, c, in), "filter qr_gateway_filter: created 1.0.0, activated, made global", "valves: qr_alpha=0.4", "model m: card created, opened to all users")
	if len(w.writes) > 0 {
		t.Errorf("a dry run wrote: %v", w.writes)
	}
}

// TestSecondRunMends cuts the connection at each write of the first run in turn.
func TestSecondRunMends(t *testing.T) {
	for _, call := range []string{
		"POST /api/v1/functions/create", "POST /api/v1/functions/id/qr_gateway_filter/toggle", "POST /api/v1/functions/id/qr_gateway_filter/toggle/global",
		"POST /api/v1/functions/id/qr_gateway_filter/valves/update", "POST /api/v1/models/create", "POST /api/v1/models/model/access/update",
	} {
		t.Run(call, func(t *testing.T) {
			w, c := newWebUI(t)
			w.serve("m", map[string]any{}, map[string]any{"description": "d"})
			in := Installation{Function: filter("1.0.0"), Valves: valves(t, "qr_alpha=0.4"), Models: true, Cards: Cards{Public: true}}
			w.answerWith(call, func(http.ResponseWriter) { panic(http.ErrAbortHandler) })
			if _, err := c.Install(t.Context(), &in); err == nil || !strings.Contains(err.Error(), "reach Open WebUI") {
				t.Fatalf("error is %v, want one about the connection", err)
			}
			w.answerWith(call, nil)
			install(t, c, in)
			f, m := w.functions["qr_gateway_filter"], w.models["m"]
			if !f.Active || !f.Global || string(w.valves[f.ID]["qr_alpha"]) != "0.4" || m == nil || len(m.Grants) != 1 {
				t.Errorf("after the second run: active %v, global %v, valves %v, card %+v", f.Active, f.Global, w.valves[f.ID], m)
			}
			said(t, install(t, c, in), "filter qr_gateway_filter: ", "valves: ", "model m: ")
		})
	}
}

func TestValvesThatDoNotFit(t *testing.T) {
	w, c := newWebUI(t)
	install(t, c, Installation{})
	w.valves["qr_gateway_filter"] = Valves{"qr_alpha": json.RawMessage(`"broken"`)}
	in := Installation{Function: filter("1.0.0"), Valves: valves(t, "priority=1")}
	_, err := c.Install(t.Context(), &in)
	wantError(t, err, "refused the valves: [ERROR: 1 validation error for Valves qr_alpha]", "--reset-valves")
	in.ResetValves = true
	said(t, install(t, c, in), "filter qr_gateway_filter: valves forgotten", "valves: priority=1")

	w.answerWith("POST /api/v1/functions/id/qr_gateway_filter/update", func(res http.ResponseWriter) {
		answer(res, refusal{http.StatusBadRequest, "2 validation errors for Valves"})
	})
	_, err = c.Install(t.Context(), &Installation{Function: filter("1.1.0")})
	wantError(t, err, "the valves stored in Open WebUI don't fit", "--reset-valves")
}

func TestInstallRefused(t *testing.T) {
	for name, bad := range map[string]struct {
		prepare func(*webui)
		in      Installation
		message string
		hint    string
	}{
		"functions off":  {func(w *webui) { w.off = true }, Installation{}, "functions are switched off", "ENABLE_PLUGINS"},
		"off, yet there": {func(w *webui) { f := filter("1.0.0"); w.off, w.functions[f.ID] = true, &f }, Installation{}, "functions are switched off", "SAFE_MODE"},
		"off, to an API key": {func(w *webui) {
			f := filter("1.0.0")
			w.off, w.functions[f.ID] = true, &f
			w.answerWith("GET /api/config", func(res http.ResponseWriter) { answer(res, refusal{http.StatusUnauthorized, "Invalid token"}) })
		}, Installation{}, "functions are switched off", "SAFE_MODE"},
		"id of another": {func(w *webui) {
			w.functions["qr_gateway_filter"] = &Function{ID: "qr_gateway_filter", Type: "pipe"}
		}, Installation{}, "no filter but a pipe", "remove it"},
		"code refused":     {nil, Installation{Function: Function{ID: "qr_gateway_filter", Content: "nothing"}}, "can't create the filter: [ERROR: Error creating function]", "log"},
		"no such valve":    {nil, Installation{Valves: Valves{"qr_top_k": json.RawMessage("3")}}, "has no valve qr_top_k", "leave it out"},
		"no model at all":  {nil, Installation{Models: true}, "lists no model of a qr-gateway", "Connections"},
		"others' models":   {func(w *webui) { w.serve("gpt", nil, nil); w.serve("odd", []int{1}, nil) }, Installation{Models: true}, "lists no model", "by hand hides"},
		"only task models": {func(w *webui) { w.serve("m:task", map[string]any{}, nil) }, Installation{Models: true}, "lists no model", "by hand hides"},
		"changed meanwhile": {func(w *webui) {
			w.serve("m", map[string]any{}, nil)
			w.answerWith("POST /api/v1/models/create", func(res http.ResponseWriter) { answer(res, refusal{http.StatusConflict, "version_conflict"}) })
		}, Installation{Models: true}, "at the same time", "again"},
	} {
		t.Run(name, func(t *testing.T) {
			w, c := newWebUI(t)
			if bad.prepare != nil {
				bad.prepare(w)
			}
			if bad.in.Function.ID == "" {
				bad.in.Function = filter("1.0.0")
			}
			report, err := c.Install(t.Context(), &bad.in)
			wantError(t, err, bad.message, bad.hint)
			for _, line := range lines(report) {
				if strings.HasSuffix(line, ": ") {
					t.Errorf("what failed is told as unchanged: %q", line)
				}
			}
			if bad.in.Models && len(report) != 1 {
				t.Errorf("the report is %v, want the filter that was finished", lines(report))
			}
		})
	}
}

func TestUninstall(t *testing.T) {
	w, c := newWebUI(t)
	w.serve("m", map[string]any{}, map[string]any{"description": "d"})
	install(t, c, Installation{Models: true, Cards: Cards{Public: true, Controls: true}})
	report, err := c.Uninstall(t.Context(), "qr_gateway_filter", true)
	if err != nil || len(w.functions) != 1 || len(w.models) != 1 {
		t.Fatalf("a dry run: %v, %d functions, %d cards", err, len(w.functions), len(w.models))
	}
	said(t, lines(report), "filter qr_gateway_filter: removed, with its valves", "model m: card removed")
	if _, err := c.Uninstall(t.Context(), "qr_gateway_filter", false); err != nil || len(w.functions)+len(w.models) != 0 {
		t.Errorf("%v; left: %v %v", err, w.functions, w.models)
	}
	report, err = c.Uninstall(t.Context(), "qr_gateway_filter", false)
	if err != nil || !report.Unchanged() {
		t.Errorf("again: %v %v", lines(report), err)
	}
}
