package observe_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/node"
	"qr-gateway/gateway/observe"
	"qr-gateway/gateway/queue"
)

var (
	_ gateway.Observer = (*observe.Metrics)(nil)
	_ dispatch.Waits   = (*observe.Metrics)(nil)
	_ dispatch.Retries = (*observe.Metrics)(nil)
	_ node.LogLosses   = (*observe.Metrics)(nil)
)

// models and gauge are sources that a test changes.
type models []backends.Info

func (m *models) List() []backends.Info { return *m }

type gauge struct {
	stats queue.Stats
	err   error
}

func (g *gauge) Stats(context.Context) (queue.Stats, error) { return g.stats, g.err }

type engine uint64

func (e engine) Restarts() uint64 { return uint64(e) }

func scrape(t *testing.T, m *observe.Metrics) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	return w.Code, w.Body.String()
}

// has asserts that a scrape shows these lines.
func has(t *testing.T, m *observe.Metrics, want ...string) {
	t.Helper()
	status, text := scrape(t, m)
	if status != http.StatusOK {
		t.Fatalf("status %d:\n%s", status, text)
	}
	lines := strings.Split(text, "\n")
	for _, w := range want {
		if !slices.Contains(lines, w) {
			t.Errorf("no line %s in:\n%s", w, ours(lines))
		}
	}
}

// ours leaves out what Go's own collectors say.
func ours(lines []string) string {
	var out []string
	for _, l := range lines {
		if strings.HasPrefix(l, "qr_") || strings.HasPrefix(l, "gen_ai_") {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}

func TestRequests(t *testing.T) {
	m := observe.NewMetrics(observe.Sources{})
	m.Observe(gateway.Outcome{
		Method: "POST", Route: "/v1/chat/completions", Model: "m", Status: 200, Stream: true,
		Duration: 1100 * time.Millisecond, FirstToken: 100 * time.Millisecond,
		Result: &backends.Result{
			Usage: backends.Usage{PromptTokens: 20, CompletionTokens: 101},
			Stats: backends.DecodeStats{Decoder: "lookahead", PeeksPerToken: 1.75},
		},
	})
	m.Observe(gateway.Outcome{Method: "BREW", Status: 404, Code: "not_found", Duration: time.Millisecond})
	m.Waited("m", 20*time.Millisecond)
	has(t, m,
		`qr_gateway_requests_total{code="",gen_ai_request_model="m",http_method="POST",http_route="/v1/chat/completions",status="200"} 1`,
		`qr_gateway_requests_total{code="not_found",gen_ai_request_model="",http_method="other",http_route="none",status="404"} 1`,
		`gen_ai_server_time_to_first_token_seconds_sum{gen_ai_request_model="m"} 0.1`,
		`gen_ai_server_time_per_output_token_seconds_sum{gen_ai_request_model="m"} 0.01`,
		`gen_ai_server_request_duration_seconds_sum{gen_ai_request_model="m"} 1.1`,
		`gen_ai_client_token_usage_sum{gen_ai_request_model="m",gen_ai_token_type="input"} 20`,
		`gen_ai_client_token_usage_sum{gen_ai_request_model="m",gen_ai_token_type="output"} 101`,
		`qr_gateway_peeks_per_token_sum{gen_ai_request_model="m"} 1.75`,
		`qr_gateway_queue_wait_seconds_sum{gen_ai_request_model="m"} 0.02`,
		`qr_gateway_request_duration_seconds_count{http_route="none"} 1`,
	)
}

// TestShortAnswers holds that nothing is recorded that was not there: no gap after one token, no peeks in plain decoding.
func TestShortAnswers(t *testing.T) {
	m := observe.NewMetrics(observe.Sources{})
	m.Observe(gateway.Outcome{
		Method: "POST", Route: "/v1/completions", Model: "m", Status: 200, Duration: time.Second, FirstToken: time.Second,
		Result: &backends.Result{Usage: backends.Usage{CompletionTokens: 1}, Stats: backends.DecodeStats{Decoder: "plain"}},
	})
	if _, text := scrape(t, m); strings.Contains(text, "per_output_token_seconds_") || strings.Contains(text, "peeks_per_token_") {
		t.Errorf("a single plain token made a gap or peeks:\n%s", ours(strings.Split(text, "\n")))
	}
}

// TestRetries: tries are counted by phase, and the tokens of a repeated answer once.
func TestRetries(t *testing.T) {
	m := observe.NewMetrics(observe.Sources{})
	for range 2 {
		m.Retried("m", dispatch.RetryEarly)
	}
	m.Retried("m", dispatch.RetryJoined)
	m.LogLost("m")
	m.Observe(gateway.Outcome{
		Method: "POST", Route: "/v1/completions", Model: "m", Status: 200, Duration: time.Second, Joined: true,
		Result: &backends.Result{Usage: backends.Usage{CompletionTokens: 9}},
	})
	has(t, m, `qr_gateway_retries_total{gen_ai_request_model="m",phase="before_first_text"} 2`,
		`qr_gateway_retries_total{gen_ai_request_model="m",phase="joined"} 1`, `qr_gateway_log_losses_total{gen_ai_request_model="m"} 1`)
	if _, text := scrape(t, m); strings.Contains(text, "token_usage_sum") {
		t.Errorf("the tokens of a repeated answer count twice:\n%s", ours(strings.Split(text, "\n")))
	}
}

// TestStaleSeriesGo holds that a model or state that is gone is gone from the next scrape.
func TestStaleSeriesGo(t *testing.T) {
	list := &models{{Model: "a", Ready: true, State: "ready", Workers: 4, Busy: 3}, {Model: "b", State: "restarting"}}
	q := &gauge{stats: queue.Stats{
		Models:    map[string]queue.ModelStats{"a": {Waiting: 5, Running: 3, WaitingTokens: 500, Oldest: time.Second, Classes: [queue.Classes]queue.ClassStats{queue.ClassTask: {Waiting: 2, Oldest: time.Second}}}},
		Submitted: 9, Requeued: 1, Tokens: 77, Claims: 3,
		Calls: map[string]queue.CallStats{"claim": {Calls: 4, Errors: 1, Time: 2 * time.Second}},
	}}
	m := observe.NewMetrics(observe.Sources{Queue: q, Models: list, Engines: map[string]observe.Restarter{"b": engine(2)}})
	has(t, m,
		`qr_gateway_model_ready{gen_ai_request_model="a",state="ready"} 1`,
		`qr_gateway_model_ready{gen_ai_request_model="b",state="restarting"} 0`,
		`qr_gateway_workers{gen_ai_request_model="a"} 4`,
		`qr_gateway_workers_busy{gen_ai_request_model="a"} 3`,
		`qr_gateway_engine_restarts_total{gen_ai_request_model="b"} 2`,
		`qr_gateway_queue_depth{gen_ai_request_model="a"} 5`,
		`qr_gateway_queue_depth_tokens{gen_ai_request_model="a"} 500`,
		`qr_gateway_queue_oldest_seconds{gen_ai_request_model="a"} 1`,
		`qr_gateway_queue_jobs_total{state="submitted"} 9`,
		`qr_gateway_queue_lease_events_total{event="requeued"} 1`,
		`qr_gateway_queue_class_depth{class="task",gen_ai_request_model="a"} 2`,
		`qr_gateway_queue_class_oldest_seconds{class="task",gen_ai_request_model="a"} 1`,
		`qr_gateway_queue_claims 3`,
		`qr_gateway_queue_tokens_total 77`,
		`qr_gateway_queue_server_calls_total{call="claim"} 4`,
		`qr_gateway_queue_server_errors_total{call="claim"} 1`,
		`qr_gateway_queue_server_seconds_total{call="claim"} 2`,
	)
	*list = models{{Model: "b", Ready: true, State: "ready"}}
	q.stats.Models = nil
	_, text := scrape(t, m)
	for _, gone := range []string{`model="a"`, `state="restarting"`} {
		if strings.Contains(text, gone) {
			t.Errorf("%s is still there:\n%s", gone, ours(strings.Split(text, "\n")))
		}
	}
	has(t, m, `qr_gateway_model_ready{gen_ai_request_model="b",state="ready"} 1`)
}

// TestDeadQueue holds that a queue that can't be asked shows as such, without zeros and without spoiling the rest.
func TestDeadQueue(t *testing.T) {
	list := &models{{Model: "a", Ready: true, State: "ready"}}
	m := observe.NewMetrics(observe.Sources{Queue: &gauge{err: errors.New("connection refused")}, Models: list})
	has(t, m, "qr_gateway_queue_up 0", `qr_gateway_model_ready{gen_ai_request_model="a",state="ready"} 1`)
	if _, text := scrape(t, m); strings.Contains(text, "queue_depth") {
		t.Errorf("a dead queue has a depth:\n%s", ours(strings.Split(text, "\n")))
	}
}

// TestLoad holds the three gauges that balancers read: of the whole process, and without what others' models have waiting.
func TestLoad(t *testing.T) {
	list := &models{{Model: "a", Workers: 4, Busy: 1, Context: 1000}, {Model: "b", Workers: 1, Busy: 1, Context: 4000}}
	q := &gauge{stats: queue.Stats{Models: map[string]queue.ModelStats{"a": {Waiting: 5}, "b": {Waiting: 2}, "elsewhere": {Waiting: 9}}}}
	m := observe.NewMetrics(observe.Sources{Queue: q, Models: list})
	has(t, m, "vllm:num_requests_waiting 7", "vllm:num_requests_running 2", "vllm:kv_cache_usage_perc 0.625")
	q.err = errors.New("connection refused")
	*list = models{{Model: "c"}} // of a server elsewhere that says nothing of its workers
	has(t, m, "vllm:num_requests_running 0", "vllm:kv_cache_usage_perc 0")
	if _, text := scrape(t, m); strings.Contains(text, "vllm:num_requests_waiting ") {
		t.Error("a queue that can't be asked has a depth")
	}
}
