package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"qr-gateway/gateway/route"
)

// Route picks among the replicas of a model. It never waits for one.
type Route interface {
	Stats() []route.Stats
}

// routes reads them at each scrape. It implements prometheus.Collector. Its labels have as many values as the configuration has names.
type routes struct {
	from map[string]Route

	picks, failovers, failures, inFlight, ready, breaker *prometheus.Desc
}

const labelReplica = "replica"

func newRoutes(from map[string]Route) *routes {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("qr_gateway_route_"+name, help, append([]string{labelModel, labelReplica}, more...), nil)
	}
	return &routes{
		from:      from,
		picks:     desc("picks_total", "Requests given to the replica, by why it was picked.", "reason"),
		failovers: desc("failovers_total", "Requests that went on to another replica after this one had failed."),
		failures:  desc("failures_total", "Failures that the replica's breaker was told of."),
		inFlight:  desc("in_flight", "Requests that are with the replica."),
		ready:     desc("ready", "1 if the replica can take requests."),
		breaker:   desc("breaker", "1 for the state that the replica's breaker is in.", "state"),
	}
}

// Describe implements prometheus.Collector.
func (r *routes) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{r.picks, r.failovers, r.failures, r.inFlight, r.ready, r.breaker} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (r *routes) Collect(out chan<- prometheus.Metric) {
	for model, from := range r.from {
		for _, s := range from.Stats() {
			r.replica(out, model, s)
		}
	}
}

func (r *routes) replica(out chan<- prometheus.Metric, model string, s route.Stats) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, more ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, value, append([]string{model, s.Name}, more...)...)
	}
	for reason, n := range s.Picks {
		send(r.picks, prometheus.CounterValue, float64(n), reason)
	}
	send(r.failovers, prometheus.CounterValue, float64(s.Failovers))
	send(r.failures, prometheus.CounterValue, float64(s.Failures))
	send(r.inFlight, prometheus.GaugeValue, float64(s.InFlight))
	send(r.ready, prometheus.GaugeValue, one(s.Ready))
	for _, state := range route.BreakerStates() {
		send(r.breaker, prometheus.GaugeValue, one(state == s.Breaker), state)
	}
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
