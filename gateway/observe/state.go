package observe

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"qr-gateway/backends"
	"qr-gateway/gateway/queue"
)

// Models lists the served models. It never waits for an engine.
type Models interface {
	List() []backends.Info
}

// Restarter counts how often a model's engine was started again. Optional: what Restarts says of a model without one is left
// out.
type Restarter interface {
	Restarts() uint64
}

// Sources are the owners of what is read at each scrape. All are optional.
type Sources struct {
	Queue   queue.Gauge
	Models  Models
	Engines map[string]Restarter // by model id; not changed afterwards
	Entropy Entropy
	Routes  map[string]Route // by model id; not changed afterwards
	VLLM    map[string]VLLM  // by model id; not changed afterwards
	Sidecar Sidecar
}

// scrapeTime bounds how long a scrape waits for the queue.
const scrapeTime = 2 * time.Second

// state reads sources at each scrape. It implements prometheus.Collector and keeps nothing between two.
type state struct {
	from Sources
	load load

	up, depth, depthTokens, running, oldest *prometheus.Desc
	classDepth, classOldest, claims, tokens *prometheus.Desc
	jobs, leases                            *prometheus.Desc
	calls, callErrors, callTime             *prometheus.Desc
	ready, workers, busy, restarts          *prometheus.Desc
}

func newState(s Sources) *state {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("qr_gateway_"+name, help, labels, nil)
	}
	return &state{
		from:        s,
		load:        newLoad(),
		up:          desc("queue_up", "1 if the queue could be asked at this scrape."),
		depth:       desc("queue_depth", "Requests that wait for a worker.", labelModel),
		depthTokens: desc("queue_depth_tokens", "Tokens, prompt and answer, of the requests that wait.", labelModel),
		running:     desc("queue_running", "Requests that are with a worker.", labelModel),
		oldest:      desc("queue_oldest_seconds", "How long the oldest of those waiting has waited.", labelModel),
		classDepth:  desc("queue_class_depth", "Requests that wait for a worker, by how urgent they are.", labelModel, "class"),
		classOldest: desc("queue_class_oldest_seconds", "How long the oldest of those has waited.", labelModel, "class"),
		claims:      desc("queue_claims", "Workers of all models that wait for a request."),
		tokens:      desc("queue_tokens_total", "Tokens, prompt and answer, that requests have taken."),
		calls:       desc("queue_server_calls_total", "Exchanges of this process with the queue's server, by what was asked.", "call"),
		callErrors:  desc("queue_server_errors_total", "Those that failed.", "call"),
		callTime:    desc("queue_server_seconds_total", "Time that they took.", "call"),
		jobs:        desc("queue_jobs_total", "Jobs by what became of them.", "state"),
		leases:      desc("queue_lease_events_total", "Leases that were lost, jobs queued again, and late writes refused.", "event"),
		ready:       desc("model_ready", "1 if the model can take a request now.", labelModel, "state"),
		workers:     desc("workers", "Requests that the model can run at once.", labelModel),
		busy:        desc("workers_busy", "Workers that run a request.", labelModel),
		restarts:    desc("engine_restarts_total", "How often the model's engine was started again.", labelModel),
	}
}

// Describe implements prometheus.Collector.
func (s *state) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		s.up, s.depth, s.depthTokens, s.running, s.oldest, s.classDepth, s.classOldest, s.claims, s.tokens,
		s.calls, s.callErrors, s.callTime, s.jobs, s.leases, s.ready, s.workers, s.busy, s.restarts,
	} {
		out <- d
	}
	s.load.describe(out)
}

// Collect implements prometheus.Collector.
func (s *state) Collect(out chan<- prometheus.Metric) {
	var models []backends.Info
	if s.from.Models != nil {
		models = s.from.Models.List()
		s.collectModels(out, models)
	}
	for id, e := range s.from.Engines {
		out <- prometheus.MustNewConstMetric(s.restarts, prometheus.CounterValue, float64(e.Restarts()), id)
	}
	var q *queue.Stats
	if s.from.Queue != nil {
		q = s.collectQueue(out)
	}
	if s.from.Models != nil {
		s.load.collect(out, models, q)
	}
}

func (s *state) collectModels(out chan<- prometheus.Metric, models []backends.Info) {
	for _, i := range models {
		ready := 0.0
		if i.Ready {
			ready = 1
		}
		out <- prometheus.MustNewConstMetric(s.ready, prometheus.GaugeValue, ready, i.Model, i.State)
		out <- prometheus.MustNewConstMetric(s.workers, prometheus.GaugeValue, float64(i.Workers), i.Model)
		out <- prometheus.MustNewConstMetric(s.busy, prometheus.GaugeValue, float64(i.Busy), i.Model)
	}
}

// collectQueue returns what it found, or nil.
func (s *state) collectQueue(out chan<- prometheus.Metric) *queue.Stats {
	ctx, stop := context.WithTimeout(context.Background(), scrapeTime)
	defer stop()
	q, err := s.from.Queue.Stats(ctx)
	if err != nil { // the rest of the scrape is wanted all the more
		out <- prometheus.MustNewConstMetric(s.up, prometheus.GaugeValue, 0)
		return nil
	}
	out <- prometheus.MustNewConstMetric(s.up, prometheus.GaugeValue, 1)
	for id, m := range q.Models {
		out <- prometheus.MustNewConstMetric(s.depth, prometheus.GaugeValue, float64(m.Waiting), id)
		out <- prometheus.MustNewConstMetric(s.depthTokens, prometheus.GaugeValue, float64(m.WaitingTokens), id)
		out <- prometheus.MustNewConstMetric(s.running, prometheus.GaugeValue, float64(m.Running), id)
		out <- prometheus.MustNewConstMetric(s.oldest, prometheus.GaugeValue, m.Oldest.Seconds(), id)
		for class, c := range m.Classes {
			name := queue.Class(class).String()
			out <- prometheus.MustNewConstMetric(s.classDepth, prometheus.GaugeValue, float64(c.Waiting), id, name)
			out <- prometheus.MustNewConstMetric(s.classOldest, prometheus.GaugeValue, c.Oldest.Seconds(), id, name)
		}
	}
	out <- prometheus.MustNewConstMetric(s.claims, prometheus.GaugeValue, float64(q.Claims))
	count := func(d *prometheus.Desc, n int64, label string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), label)
	}
	out <- prometheus.MustNewConstMetric(s.tokens, prometheus.CounterValue, float64(q.Tokens))
	for call, c := range q.Calls {
		count(s.calls, c.Calls, call)
		count(s.callErrors, c.Errors, call)
		out <- prometheus.MustNewConstMetric(s.callTime, prometheus.CounterValue, c.Time.Seconds(), call)
	}
	count(s.jobs, q.Submitted, "submitted")
	count(s.jobs, q.Refused, "refused")
	count(s.jobs, q.Done, "done")
	count(s.jobs, q.Failed, "failed")
	count(s.jobs, q.Cancelled, "cancelled")
	count(s.jobs, q.Expired, "expired")
	count(s.leases, q.LeasesLost, "lost")
	count(s.leases, q.Requeued, "requeued")
	count(s.leases, q.Fenced, "fenced")
	return &q
}
