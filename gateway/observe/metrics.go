package observe

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"qr-gateway/backends"
	"qr-gateway/gateway"
)

// Metrics counts and times. The gen_ai names and their buckets are those of OpenTelemetry's conventions for generative AI,
// with finer steps below 10 ms a token, where small local models are.
type Metrics struct {
	registry *prometheus.Registry

	requests  *prometheus.CounterVec
	http      *prometheus.HistogramVec
	duration  *prometheus.HistogramVec
	first     *prometheus.HistogramVec
	perToken  *prometheus.HistogramVec
	tokens    *prometheus.HistogramVec
	queueWait *prometheus.HistogramVec
	retries   *prometheus.CounterVec
	logLosses *prometheus.CounterVec
	peeks     *prometheus.HistogramVec
	chosen    *prometheus.CounterVec
	fallback  *prometheus.CounterVec
}

// Labels.
const (
	labelModel = "gen_ai_request_model"
	labelToken = "gen_ai_token_type"
	labelRoute = "http_route"
)

// NewMetrics makes a registry with everything but the state that sources report at each scrape.
func NewMetrics(s Sources) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "qr_gateway_requests_total", Help: "HTTP requests that have ended. Status 499 is a client that left.",
		}, []string{labelRoute, "http_method", labelModel, "status", "code"}),
		http: histogram("qr_gateway_request_duration_seconds", "Time of an HTTP request, from its headers to the reply's end.",
			secondsBuckets(), labelRoute),
		duration: histogram("gen_ai_server_request_duration_seconds", "Time of a generation, waiting included.",
			secondsBuckets(), labelModel),
		first: histogram("gen_ai_server_time_to_first_token_seconds", "Time to the first text, waiting included.",
			[]float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30, 60}, labelModel),
		perToken: histogram("gen_ai_server_time_per_output_token_seconds", "Mean time between tokens of a request, after its first.",
			[]float64{.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5}, labelModel),
		tokens: histogram("gen_ai_client_token_usage", "Tokens of a request.",
			prometheus.ExponentialBuckets(1, 4, 10), labelModel, labelToken),
		queueWait: histogram("qr_gateway_queue_wait_seconds", "Time between queueing and a free worker.",
			prometheus.ExponentialBuckets(.001, 4, 10), labelModel),
		peeks: histogram("qr_gateway_peeks_per_token", "Candidates that look-ahead evaluated for each token of a request.",
			[]float64{.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 20, 50}, labelModel),
	}
	m.chosen = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "qr_gateway_entropy_tokens_total", Help: "Tokens of answers that have ended, by the source that they asked for; seed and none among them.",
	}, []string{labelModel, labelSource})
	m.retries = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "qr_gateway_retries_total", Help: "Requests that were tried again, by phase: before_first_text, continued, resubmitted (the queue had forgotten them), " +
			"joined (sent again by their client, and not run).",
	}, []string{labelModel, "phase"})
	m.logLosses = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "qr_gateway_log_losses_total", Help: "Answers whose log, for those who repeat the request, could not be written whole.",
	}, []string{labelModel})
	m.fallback = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "qr_gateway_entropy_fallback_tokens_total", Help: "Those of them whose number the second choice made.",
	}, []string{labelModel, labelSource})
	m.registry.MustRegister(m.requests, m.http, m.duration, m.first, m.perToken, m.tokens, m.queueWait, m.retries, m.logLosses, m.peeks, m.chosen, m.fallback,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), newState(s))
	if s.Entropy != nil {
		m.registry.MustRegister(newSources(s.Entropy))
	}
	if len(s.Routes) > 0 {
		m.registry.MustRegister(newRoutes(s.Routes))
	}
	if len(s.VLLM) > 0 {
		m.registry.MustRegister(newSampled(s.VLLM))
	}
	if s.Sidecar != nil {
		m.registry.MustRegister(newSide(s.Sidecar))
	}
	return m
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// secondsBuckets go from 10 ms to 5 minutes.
func secondsBuckets() []float64 { return append(prometheus.ExponentialBuckets(.01, 2, 14), 160, 320) }

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Observe implements the gateway's Observer.
func (m *Metrics) Observe(o gateway.Outcome) {
	route := o.Route
	if route == "" {
		route = "none"
	}
	m.requests.WithLabelValues(route, method(o.Method), o.Model, strconv.Itoa(o.Status), o.Code).Inc()
	m.http.WithLabelValues(route).Observe(o.Duration.Seconds())
	if o.FirstToken > 0 {
		m.first.WithLabelValues(o.Model).Observe(o.FirstToken.Seconds())
	}
	if o.Result != nil && !o.Joined { // else its tokens would count twice
		m.generation(o, o.Result)
	}
}

func (m *Metrics) generation(o gateway.Outcome, r *backends.Result) {
	m.duration.WithLabelValues(o.Model).Observe(o.Duration.Seconds())
	m.tokens.WithLabelValues(o.Model, "input").Observe(float64(r.Usage.PromptTokens))
	m.tokens.WithLabelValues(o.Model, "output").Observe(float64(r.Usage.CompletionTokens))
	if n := r.Usage.CompletionTokens - 1; n > 0 && o.FirstToken > 0 {
		m.perToken.WithLabelValues(o.Model).Observe((o.Duration - o.FirstToken).Seconds() / float64(n))
	}
	if s := r.Stats; s.Tokens > 0 {
		m.chosen.WithLabelValues(o.Model, s.EntropySource).Add(float64(s.Tokens))
		m.fallback.WithLabelValues(o.Model, s.EntropySource).Add(float64(s.FallbackTokens))
	}
	if r.Stats.Decoder == "lookahead" {
		m.peeks.WithLabelValues(o.Model).Observe(r.Stats.PeeksPerToken)
	}
}

// Waited implements the dispatcher's Waits.
func (m *Metrics) Waited(model string, d time.Duration) {
	m.queueWait.WithLabelValues(model).Observe(d.Seconds())
}

// Retried implements the dispatcher's Retries.
func (m *Metrics) Retried(model, phase string) { m.retries.WithLabelValues(model, phase).Inc() }

// LogLost implements the node's LogLosses.
func (m *Metrics) LogLost(model string) { m.logLosses.WithLabelValues(model).Inc() }

// method keeps what a client makes up from becoming a series.
func method(name string) string {
	switch name {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodPatch:
		return name
	default:
		return "other"
	}
}
