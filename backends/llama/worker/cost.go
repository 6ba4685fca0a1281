package worker

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// costReps is how often a batch is timed. The quickest counts: whatever else the machine does only adds.
	costReps = 4
	// steady is how much longer than the quickest the middle one may take. On a busy machine a table would tell of its
	// other work, long after that has ended.
	steady = 1.2
	// costPatience is how long the start may be held up. A model slow enough to reach it is served by the built-in table.
	costPatience = 2 * time.Second
)

// MeasureCost times batches of 1 to group candidates on an empty cache and returns their cost in units of the first, for
// lookahead.Config: what a batch saves depends on the model and the machine. It returns nil when the machine is too busy to
// tell, or the model too slow to tell soon. The cache is empty again afterwards.
func MeasureCost(ctx context.Context, c Cache, group int, ordinary []int32) ([]float64, error) {
	t := &selfTest{lane: &lane{Cache: c, progress: &Progress{}}, group: group}
	t.prompt, t.token = sample(ordinary, testPrompt), sample(ordinary, group)
	defer c.Clear()
	if err := t.feed(ctx, t.prompt, 0); err != nil {
		return nil, fmt.Errorf("decode prompt: %w", err)
	}
	var sizes []int
	var times []time.Duration
	begun := time.Now()
	for _, n := range []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, MaxGroup} {
		n = min(n, group)
		d, calm, err := t.quickest(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("time a batch of %d: %w", n, err)
		}
		if !calm || time.Since(begun) > costPatience {
			return nil, nil
		}
		sizes, times = append(sizes, n), append(times, d)
		if n == group {
			break
		}
	}
	return costTable(sizes, times), nil
}

// quickest times a batch of n forks, and reports whether the times were much alike.
func (t *selfTest) quickest(ctx context.Context, n int) (best time.Duration, calm bool, err error) {
	var times [costReps]time.Duration
	for rep := range times {
		begun := time.Now()
		if err := t.fork(n, func(i int) int32 { return t.token[i] }); err != nil {
			return 0, false, err
		}
		if err := t.lane.decode(ctx); err != nil {
			return 0, false, err
		}
		times[rep] = time.Since(begun)
		if err := t.unfork(n); err != nil {
			return 0, false, err
		}
	}
	slices.Sort(times[:])
	return times[0], float64(times[costReps/2]) <= steady*float64(times[0]), nil
}

// costTable fills in the sizes between those that were timed. A larger batch never counts as cheaper than a smaller one, nor
// as dearer than its candidates one by one.
func costTable(sizes []int, times []time.Duration) []float64 {
	table := make([]float64, 0, sizes[len(sizes)-1])
	unit := float64(max(times[0], 1))
	last := 1.0
	for i, n := range sizes {
		cost := min(max(float64(times[i])/unit, last), float64(n))
		for from := len(table); len(table) < n; {
			part := float64(len(table)+1-from) / float64(n-from)
			table = append(table, last+(cost-last)*part)
		}
		last = cost
	}
	return table
}
