package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"qr-gateway/gateway"
)

// Entropy lists the entropy sources as they are now. It never touches one.
type Entropy interface {
	States() []gateway.SourceState
}

const labelSource = "entropy_source"

// sources reads the counters of the entropy sources at each scrape. It implements prometheus.Collector.
type sources struct {
	from Entropy

	draws, bytes, numbers, discarded   *prometheus.Desc
	fallbacks, alarms, failures, flags *prometheus.Desc
	latency, state, degraded, breaker  *prometheus.Desc
}

func newSources(from Entropy) *sources {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("qr_gateway_entropy_"+name, help, append([]string{labelSource}, labels...), nil)
	}
	return &sources{
		from:      from,
		draws:     desc("draws_total", "Blocks that the source served itself."),
		bytes:     desc("bytes_total", "Bytes that the source served itself."),
		numbers:   desc("numbers_total", "Numbers that the source's server made."),
		discarded: desc("discarded_bytes_total", "Bytes that came and were not used, start-up tests included."),
		fallbacks: desc("fallbacks_total", "Blocks that the second choice served, by what was wrong.", "reason"),
		alarms:    desc("alarms_total", "Alarms of the tests.", "reason"),
		failures:  desc("errors_total", "Draws that failed, by kind.", "kind"),
		flags:     desc("flags_total", "Blocks with a finding, used or not.", "flag"),
		latency:   desc("latency_seconds", "Time from request to arrival of a block."),
		state:     desc("state", "1 for the state that the source is in.", "state"),
		degraded:  desc("degraded", "1 if the last draw failed or was served by the second choice."),
		breaker:   desc("breaker", "1 for the state of the source's breaker.", "state"),
	}
}

// Describe implements prometheus.Collector.
func (s *sources) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		s.draws, s.bytes, s.numbers, s.discarded, s.fallbacks, s.alarms, s.failures, s.flags, s.latency, s.state, s.degraded, s.breaker,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (s *sources) Collect(out chan<- prometheus.Metric) {
	for _, st := range s.from.States() {
		s.collect(&st, out)
	}
}

func (s *sources) collect(st *gateway.SourceState, out chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, n uint64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), st.Source)
	}
	by := func(d *prometheus.Desc, counts map[string]uint64) {
		for label, n := range counts {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), st.Source, label)
		}
	}
	count(s.draws, st.Draws)
	count(s.bytes, st.Bytes)
	count(s.numbers, st.Numbers)
	count(s.discarded, st.DiscardedBytes)
	by(s.fallbacks, st.Fallbacks)
	by(s.alarms, st.Alarms)
	by(s.failures, st.Errors)
	by(s.flags, st.Flags)
	s.histogram(st, out)
	out <- prometheus.MustNewConstMetric(s.state, prometheus.GaugeValue, 1, st.Source, string(st.Mode))
	degraded := 0.0
	if st.Degraded {
		degraded = 1
	}
	out <- prometheus.MustNewConstMetric(s.degraded, prometheus.GaugeValue, degraded, st.Source)
	if st.Breaker != "" {
		out <- prometheus.MustNewConstMetric(s.breaker, prometheus.GaugeValue, 1, st.Source, st.Breaker)
	}
}

func (s *sources) histogram(st *gateway.SourceState, out chan<- prometheus.Metric) {
	buckets, n := map[float64]uint64{}, uint64(0)
	for i, c := range st.Latency.Counts {
		n += c
		if i < len(st.Latency.UpperSeconds) {
			buckets[st.Latency.UpperSeconds[i]] = n
		}
	}
	out <- prometheus.MustNewConstHistogram(s.latency, n, st.Latency.SumSeconds, buckets, st.Source)
}
