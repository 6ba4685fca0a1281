package vllm_test

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/vllmtest"
)

// TestProbe holds how a server is found to sample or not, and that it serves plain requests in either case.
func TestProbe(t *testing.T) {
	all := func(m vllmtest.Move) func(string, int) vllmtest.Move { return from(0, m) }
	for name, c := range map[string]struct {
		o      vllmtest.Options
		script func(string, int) vllmtest.Move
		refuse error
		why    string
	}{
		"well":              {o: vllmtest.Options{Plugin: true}},
		"a void draw":       {o: vllmtest.Options{Plugin: true}, script: all(vllmtest.Move{Void: true})},
		"no plugin":         {why: "start vLLM with --logits-processors qr_vllm:Processor"},
		"plugin alone":      {o: vllmtest.Options{Plugin: true}, script: all(vllmtest.Move{Unsaid: true}), why: "heard nothing"},
		"left to vLLM":      {o: vllmtest.Options{Plugin: true}, script: all(vllmtest.Move{Status: choice.Native}), why: "left a probe's token to vLLM"},
		"stopped":           {o: vllmtest.Options{Plugin: true}, script: all(vllmtest.Move{Status: choice.Stop}), why: "stopped by the sidecar"},
		"another token":     {o: vllmtest.Options{Plugin: true}, script: all(vllmtest.Move{Wrong: true}), why: "another than the sidecar chose"},
		"too old":           {o: vllmtest.Options{Plugin: true, NoIDs: true}, why: "take vLLM 0.10.2 or later"},
		"refused":           {o: vllmtest.Options{Plugin: true, Refuse: refuse(400, `{"error":{"message":"qr_v is 1; this plugin takes 2","code":400}}`)}, why: "this plugin takes 2"},
		"sidecar is away":   {o: vllmtest.Options{Plugin: true}, refuse: errors.New("no such socket"), why: "the sidecar can't be asked"},
		"full at that time": {o: vllmtest.Options{Plugin: true, Refuse: refuse(503, `{"error":{"message":"queue is full","code":503}}`)}, why: "queue is full"},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Model, c.o.Length = "there", 3
			r := &rig{side: vllmtest.NewSampler(), log: &syncBuffer{}}
			if c.script != nil {
				r.side.Script(c.script)
			}
			r.side.Refuse(c.refuse)
			r.far = vllmtest.NewServer(t, c.o, r.side)
			cfg := config(r.far.URL)
			short(&cfg)
			r.run(t, cfg)
			i := r.until(t, "ready", func(i backends.Info) bool { return i.Ready })
			if !i.Samples || (i.Unsampled == "") != (c.why == "") || !strings.Contains(i.Unsampled, c.why) || r.Counts().Probes == 0 {
				t.Errorf("it is %+v, want it unsampled for %q", i, c.why)
			}
			r.far.Set(func(o *vllmtest.Options) { o.Refuse = nil })
			q := chat(false, "")
			q.Sampled = false
			ask(t.Context(), r, q).well(t)
			if c.why != "" {
				e := ask(t.Context(), r, chat(false, "")).failure(t, backends.KindUnavailable, "sampler_unavailable")
				if !strings.Contains(e.Message, c.why) {
					t.Errorf("message %q", e.Message)
				}
				if len(r.far.Bodies()) != 1 {
					t.Errorf("the server got %q", r.far.Bodies())
				}
			}
			r.idle(t)
		})
	}
}

// run makes the rig's backend and runs it.
func (r *rig) run(t *testing.T, c vllm.Config) {
	t.Helper()
	var err error
	if r.Backend, err = vllm.New(c, vllm.Deps{Choices: r.side, Log: r.logger()}); err != nil {
		t.Fatal(err)
	}
	running(t, r.Backend)
}

// TestProbedAgain follows a server through restarts of its engine: without the plugin, and with it again.
func TestProbedAgain(t *testing.T) {
	r := sampling(t, vllmtest.Options{}, nil)
	r.far.Set(func(o *vllmtest.Options) { o.Plugin = false })
	r.side.Restart("")
	r.until(t, "found to have no plugin", func(i backends.Info) bool { return i.Unsampled != "" && i.Ready })
	r.far.Set(func(o *vllmtest.Options) { o.Plugin = true })
	r.side.Restart("second")
	r.until(t, "found to have one again", func(i backends.Info) bool { return i.Unsampled == "" })
	n := r.Counts().Probes
	r.side.Script(from(0, vllmtest.Move{Unsaid: true}))
	r.until(t, "left alone while it is well", func(backends.Info) bool { return r.Counts().Probes == n })
	ask(t.Context(), r, chat(false, "")).fails(t, backends.KindUnavailable, "sampler_unavailable")
	r.until(t, "doubted by a request that was not sampled", func(i backends.Info) bool { return i.Unsampled != "" })
	r.side.Script(from(0, vllmtest.Move{}))
	r.until(t, "well", func(i backends.Info) bool { return i.Unsampled == "" })
	ask(t.Context(), r, chat(false, "")).well(t)
}

// TestWithoutProbe takes sampling for granted.
func TestWithoutProbe(t *testing.T) {
	r := sampling(t, vllmtest.Options{}, func(c *vllm.Config) { c.Probe = false })
	r.side.Restart("")
	ask(t.Context(), r, chat(true, "")).well(t)
	if n := r.Counts().Probes; n != 0 {
		t.Errorf("%d probes", n)
	}
}

// TestWithoutSidecar serves plain requests alone.
func TestWithoutSidecar(t *testing.T) {
	side := vllmtest.NewSampler()
	far := vllmtest.NewServer(t, vllmtest.Options{Model: "there"}, side)
	b, err := vllm.New(config(far.URL), vllm.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	running(t, b)
	q := chat(true, "")
	ask(t.Context(), b, q).fails(t, backends.KindUnavailable, "sampler_unavailable")
	q.Sampled = false
	ask(t.Context(), b, q).well(t)
	if i := b.Info(); i.Samples || i.Unsampled != "" || !i.Raw || i.PassParams || i.Backend != "vllm" || i.Context != 512 {
		t.Errorf("it is %+v", i)
	}
}

func TestProcessedLogprobs(t *testing.T) {
	for _, processed := range []bool{false, true} {
		r := sampling(t, vllmtest.Options{Processed: processed}, nil)
		if warned := strings.Contains(r.log.String(), "--logprobs-mode raw_logprobs"); warned != processed {
			t.Errorf("processed %t, warned %t", processed, warned)
		}
	}
}

const someMetrics = `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="there"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="there"} 3.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="there"} 0.5
`

// TestHealth holds that a server whose engine is dead takes nothing, and what is read of its load.
func TestHealth(t *testing.T) {
	r := sampling(t, vllmtest.Options{Metrics: someMetrics}, nil)
	if i := r.Info(); i.Load != (2+2*3)/4.0+0.5 {
		t.Errorf("load is %g", i.Load)
	}
	hold, held := make(chan struct{}), make(chan struct{})
	r.far.Set(func(o *vllmtest.Options) {
		o.Metrics = strings.Replace(someMetrics, "waiting{engine=\"0\",model_name=\"there\"} 3.0", "waiting{engine=\"0\",model_name=\"there\"} 0", 1)
		o.Hold = func(_ *http.Request, step int) {
			if step == 0 {
				held <- struct{}{}
				<-hold
			}
		}
	})
	r.until(t, "less loaded", func(i backends.Info) bool { return i.Load == 1 })
	r.far.Set(func(o *vllmtest.Options) { o.Metrics = "" })
	r.until(t, "without a load", func(i backends.Info) bool { return i.Load == 0 })
	done := make(chan outcome)
	go func() { done <- ask(t.Context(), r, chat(false, "")) }()
	<-held
	if i := r.Info(); i.Busy != 1 {
		t.Errorf("it is %+v", i)
	}
	r.far.Set(func(o *vllmtest.Options) { o.Health = http.StatusServiceUnavailable })
	i := r.until(t, "away", func(i backends.Info) bool { return !i.Ready })
	if !strings.Contains(i.Reason, "its engine is not well") {
		t.Errorf("it is away for %q", i.Reason)
	}
	r.far.Set(func(o *vllmtest.Options) { o.Health = 0 })
	r.until(t, "back", func(i backends.Info) bool { return i.Ready })
	close(hold)
	(<-done).well(t)
}

// TestLoadOfChoices holds that a request with several choices weighs as many, until the server tells its load again.
func TestLoadOfChoices(t *testing.T) {
	held, hold := make(chan struct{}, 3), make(chan struct{})
	r := sampling(t, vllmtest.Options{Metrics: someMetrics}, func(c *vllm.Config) { c.Health.Interval = time.Hour })
	r.far.Set(func(o *vllmtest.Options) {
		o.Hold = func(_ *http.Request, step int) {
			if step == 0 {
				held <- struct{}{}
				<-hold
			}
		}
	})
	before := r.Info().Load
	done := make(chan outcome)
	go func() { done <- ask(t.Context(), r, chat(false, `,"n":3`)) }()
	for range 3 {
		<-held
	}
	if i := r.Info(); i.Busy != 1 || i.Load != before+3.0/4 {
		t.Errorf("load was %g; it is %+v", before, i)
	}
	close(hold)
	(<-done).well(t)
	if i := r.Info(); i.Busy != 0 || i.Load != before {
		t.Errorf("load was %g; it is %+v", before, i)
	}
}

// TestConfig holds which addresses and values are taken.
func TestConfig(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*vllm.Config)
		want   string // in the error; empty: none
	}{
		"host":         {func(c *vllm.Config) { c.URL = "http://127.0.0.1:8000" }, ""},
		"with version": {func(c *vllm.Config) { c.URL = "https://h/x/v1/" }, ""},
		"socket":       {func(c *vllm.Config) { c.URL = "unix:/run/vllm.sock" }, ""},
		"socket, long": {func(c *vllm.Config) { c.URL = "unix:///run/vllm.sock" }, ""},
		"none":         {func(c *vllm.Config) { c.URL = "" }, "url is missing"},
		"no path":      {func(c *vllm.Config) { c.URL = "unix:run" }, "begins with /"},
		"endless path": {func(c *vllm.Config) { c.URL = "unix:/" + strings.Repeat("x", 120) }, "at most 107"},
		"scheme":       {func(c *vllm.Config) { c.URL = "ftp://h" }, "url is"},
		"fail":         {func(c *vllm.Config) { c.Fail = "x" }, "fail is"},
		"mismatch":     {func(c *vllm.Config) { c.Mismatch = "x" }, "mismatch is"},
		"wait":         {func(c *vllm.Config) { c.ChoiceWait = 0 }, "choice_wait is"},
		"workers":      {func(c *vllm.Config) { c.Workers = 0 }, "workers is"},
		"time-out":     {func(c *vllm.Config) { c.Timeouts.Idle = 0 }, "timeouts.idle is"},
		"model":        {func(c *vllm.Config) { c.Model = "" }, "id is missing"},
	} {
		cfg := config("http://h")
		c.change(&cfg)
		_, err := vllm.New(cfg, vllm.Deps{})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if diff := cmp.Diff(vllm.FailStop, vllm.DefaultConfig().Fail); diff != "" {
		t.Error(diff)
	}
}

// TestSocket reaches a server over a Unix socket, its health too.
func TestSocket(t *testing.T) {
	side := vllmtest.NewSampler()
	far := vllmtest.NewServer(t, vllmtest.Options{Model: "there", Plugin: true}, side)
	path := filepath.Join(t.TempDir(), "s")
	far.Listen(t, path)
	r := &rig{side: side, far: far, log: &syncBuffer{}}
	r.run(t, config("unix:"+path))
	ask(t.Context(), r, chat(true, "")).well(t)
	if i := r.Info(); i.Unsampled != "" {
		t.Errorf("it is %+v", i)
	}
}
