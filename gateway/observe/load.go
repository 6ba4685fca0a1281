package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"qr-gateway/backends"
	"qr-gateway/gateway/queue"
)

// load is what balancers ask of a model server: the three gauges of the Gateway API Inference Extension's protocol, under the names
// that its endpoint pickers read unless they are told others. A picker takes one value of each, so they are of the whole process, without labels.
type load struct {
	waiting, running, cache *prometheus.Desc
}

func newLoad() load {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc("vllm:"+name, help, nil, nil) }
	return load{
		waiting: desc("num_requests_waiting", "Requests that wait for a worker of this process's models (TotalQueuedRequests)."),
		running: desc("num_requests_running", "Requests that this process's models run (TotalRunningRequests)."),
		cache:   desc("kv_cache_usage_perc", "Share of the workers' caches that requests hold, 0 to 1 (KVCacheUtilization)."),
	}
}

func (l load) describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{l.waiting, l.running, l.cache} {
		out <- d
	}
}

// collect sends the gauges; that of the queue is left out if the queue could not be asked.
func (l load) collect(out chan<- prometheus.Metric, models []backends.Info, q *queue.Stats) {
	waiting, busy, held, room := 0, 0, 0, 0
	for _, i := range models {
		busy += i.Busy
		cells := max(1, i.Context) // each worker has a cache of its own for one whole context
		held += i.Busy * cells
		room += i.Workers * cells
		if q != nil {
			waiting += q.Models[i.Model].Waiting
		}
	}
	send := func(d *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	if q != nil {
		send(l.waiting, float64(waiting))
	}
	send(l.running, float64(busy))
	send(l.cache, min(1, float64(held)/float64(max(1, room))))
}
