package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"qr-gateway/backends/vllm"
	"qr-gateway/backends/vllm/sidecar"
)

// VLLM has tokens chosen for it by a sidecar, and compares those that it emits with those.
type VLLM interface {
	Counts() vllm.Counts
}

// Sidecar chooses tokens for vLLM.
type Sidecar interface {
	Stats() sidecar.Stats
}

// sampled reads models on vLLM at each scrape. It implements prometheus.Collector.
type sampled struct {
	from map[string]VLLM

	native, mismatched, probes *prometheus.Desc
}

func newSampled(from map[string]VLLM) *sampled {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("qr_gateway_vllm_"+name, help, []string{labelModel}, nil)
	}
	return &sampled{
		from:       from,
		native:     desc("native_tokens_total", "Tokens of sampled requests that vLLM chose itself, or that nobody is known to have chosen."),
		mismatched: desc("mismatched_tokens_total", "Tokens of sampled requests that were others than those chosen."),
		probes:     desc("probes_total", "Tokens that servers were asked for to see whether their plugin is there."),
	}
}

// Describe implements prometheus.Collector.
func (s *sampled) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.native, s.mismatched, s.probes} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (s *sampled) Collect(out chan<- prometheus.Metric) {
	for model, from := range s.from {
		c := from.Counts()
		for d, n := range map[*prometheus.Desc]uint64{s.native: c.Native, s.mismatched: c.Mismatched, s.probes: c.Probes} {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), model)
		}
	}
}

// side reads the sidecar of this process at each scrape. It implements prometheus.Collector.
type side struct {
	from Sidecar
	all  []sideMetric
}

type sideMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*sidecar.Stats) float64
}

func newSide(from Sidecar) *side {
	s := &side{from: from}
	gauge := func(name, help string, value func(*sidecar.Stats) int) {
		s.add(name, help, prometheus.GaugeValue, func(st *sidecar.Stats) float64 { return float64(value(st)) })
	}
	count := func(name, help string, value func(*sidecar.Stats) uint64) {
		s.add(name+"_total", help, prometheus.CounterValue, func(st *sidecar.Stats) float64 { return float64(value(st)) })
	}
	gauge("sessions", "Plugins that are connected.", func(st *sidecar.Stats) int { return st.Sessions })
	gauge("requests", "Requests that a plugin shows rows of.", func(st *sidecar.Stats) int { return st.Live })
	gauge("kept_requests", "Requests that are kept, with those that wait to be shown again or forgotten.", func(st *sidecar.Stats) int { return st.Kept })
	count("steps", "Steps of engines with rows to choose from.", func(st *sidecar.Stats) uint64 { return st.Steps })
	count("rows", "Rows that were answered.", func(st *sidecar.Stats) uint64 { return st.Rows })
	count("tokens", "Tokens that were chosen.", func(st *sidecar.Stats) uint64 { return st.Tokens })
	count("whole_rows", "Rows that were asked for whole.", func(st *sidecar.Stats) uint64 { return st.Whole })
	count("voids", "Draws whose row wasn't the one that counted.", func(st *sidecar.Stats) uint64 { return st.Voids })
	count("refusals", "Connections that were refused, or ended for what they sent.", func(st *sidecar.Stats) uint64 { return st.Refusals })
	count("rejected_requests", "Requests that can't be served: bad parameters, an id that is taken or finished.", func(st *sidecar.Stats) uint64 { return st.Rejected })
	count("late_rows", "Rows whose number wasn't there at the step's deadline.", func(st *sidecar.Stats) uint64 { return st.Late })
	count("failed_rows", "Rows that ended their answer by an error.", func(st *sidecar.Stats) uint64 { return st.Failed })
	count("mismatched_tokens", "Tokens that a plugin reported to be others than were chosen.", func(st *sidecar.Stats) uint64 { return st.Mismatched })
	return s
}

func (s *side) add(name, help string, kind prometheus.ValueType, value func(*sidecar.Stats) float64) {
	s.all = append(s.all, sideMetric{prometheus.NewDesc("qr_gateway_sidecar_"+name, help, nil, nil), kind, value})
}

// Describe implements prometheus.Collector.
func (s *side) Describe(out chan<- *prometheus.Desc) {
	for _, m := range s.all {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (s *side) Collect(out chan<- prometheus.Metric) {
	st := s.from.Stats()
	for _, m := range s.all {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&st))
	}
}
