package vllm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// load is what the server had to do when it was last asked.
type load struct {
	score float64 // in shares of the workers
	busy  int     // requests of ours that were under way
}

// What the server tells of its load. The cache's use has had two names.
const (
	metricWaiting  = "vllm:num_requests_waiting"
	metricRunning  = "vllm:num_requests_running"
	metricCache    = "vllm:kv_cache_usage_perc"
	metricOldCache = "vllm:gpu_cache_usage_perc"
)

// waitingWeight is how much more a request that waits there says than one that runs: there is no room for another.
const waitingWeight = 2

// gauges are the numbers of the server's engines: requests of all together, and of the cache's use, 0 to 1, the mean.
type gauges struct {
	waiting, running, cache float64
}

// score is the load in shares of workers. A full cache counts as much as all of them.
func (g gauges) score(workers int) float64 {
	return (g.running+waitingWeight*g.waiting)/float64(workers) + g.cache
}

// metricsLimit bounds what is read of the server's metrics, in bytes.
const metricsLimit = 16 << 20

// readLoad asks the server for its load. A server that doesn't tell has none: nil.
func (b *Backend) readLoad(ctx context.Context) (*load, error) {
	busy := b.underWay()
	resp, err := b.up.Get(ctx, "../metrics")
	if err != nil {
		return nil, fmt.Errorf("ask for metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask for metrics: status %d", resp.StatusCode)
	}
	g, err := readGauges(io.LimitReader(resp.Body, metricsLimit))
	if err != nil {
		return nil, err
	}
	return &load{score: g.score(b.cfg.Workers), busy: busy}, nil
}

// readGauges reads metrics in the text form of Prometheus. It is an error if those of requests are not there.
func readGauges(r io.Reader) (gauges, error) {
	lines, err := ours(r)
	if err != nil {
		return gauges{}, fmt.Errorf("read metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(lines)
	if err != nil {
		return gauges{}, fmt.Errorf("read metrics: %w", err)
	}
	waiting, nWaiting := sum(families[metricWaiting])
	running, nRunning := sum(families[metricRunning])
	if nWaiting+nRunning == 0 {
		return gauges{}, fmt.Errorf("read metrics: neither %s nor %s is there", metricWaiting, metricRunning)
	}
	cache, engines := sum(families[metricCache])
	if engines == 0 {
		cache, engines = sum(families[metricOldCache])
	}
	return gauges{waiting: waiting, running: running, cache: min(cache/float64(max(engines, 1)), 1)}, nil
}

// ours are the lines that tell the load: the rest is many times as long.
func ours(r io.Reader) (io.Reader, error) {
	var out bytes.Buffer
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		name := strings.TrimPrefix(in.Text(), "# TYPE ")
		for _, own := range []string{metricWaiting, metricRunning, metricCache, metricOldCache} {
			if rest, ok := strings.CutPrefix(name, own); ok && strings.IndexAny(rest, " {") == 0 {
				out.WriteString(in.Text() + "\n")
			}
		}
	}
	return &out, in.Err()
}

// sum adds a family up. What is negative or no number is not counted.
func sum(f *dto.MetricFamily) (total float64, n int) {
	for _, m := range f.GetMetric() {
		v := m.GetGauge().GetValue()
		if m.GetUntyped() != nil {
			v = m.GetUntyped().GetValue()
		}
		if v >= 0 && v < 1e9 {
			total += v
			n++
		}
	}
	return total, n
}
