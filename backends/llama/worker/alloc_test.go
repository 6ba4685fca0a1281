package worker

import (
	"runtime"
	"testing"

	"qr-gateway/backends"
	"qr-gateway/backends/llama/engine"
)

// allocated is what one run of job allocates.
func allocated(t *testing.T, w *Worker, job *Job) (objects, bytes float64) {
	t.Helper()
	emit := func(backends.Event) error { return nil }
	run := func() {
		if _, err := w.Do(t.Context(), job, emit); err != nil {
			t.Fatal(err)
		}
	}
	run() // buffers grow once
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const runs = 5
	for range runs {
		run()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / runs, float64(after.TotalAlloc-before.TotalAlloc) / runs
}

func TestAllocationsPerToken(t *testing.T) {
	for name, change := range map[string]func(*Job) *Job{
		"plain":   func(j *Job) *Job { return j },
		"lazy":    func(j *Job) *Job { return looking(j, "lazy", "sample", 0.3) },
		"bounded": func(j *Job) *Job { return looking(j, "bounded", "sample", 0.3) },
	} {
		w := newFakeWorker(t, newFakeCache(false), fakeConfig(engine.MemoryAttention))
		few, fewBytes := allocated(t, w, change(seeded(prompt(20, 1), 5, 20)))
		many, manyBytes := allocated(t, w, change(seeded(prompt(20, 1), 5, 320)))
		// The one string of each event is handed on; a row has 2 KB here.
		objects, bytes := (many-few)/300, (manyBytes-fewBytes)/300
		t.Logf("%s: %.2f objects, %.0f bytes per token", name, objects, bytes)
		if objects > 1.5 || bytes > 64 {
			t.Errorf("%s: %.2f objects, %.0f bytes per token; want the text and nothing else", name, objects, bytes)
		}
	}
}
