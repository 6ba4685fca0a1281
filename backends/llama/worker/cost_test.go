package worker

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"qr-gateway/sampler/lookahead"
)

func TestCostTable(t *testing.T) {
	ms := time.Millisecond
	got := costTable([]int{1, 2, 4}, []time.Duration{2 * ms, 3 * ms, 5 * ms})
	if diff := cmp.Diff([]float64{1, 1.5, 2, 2.5}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestCostTableLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := make([]time.Duration, 6)
		for i := range times {
			times[i] = time.Duration(rapid.IntRange(0, 1e6).Draw(t, "time"))
		}
		table := costTable([]int{1, 2, 3, 4, 6, 8}, times)
		if len(table) != 8 || table[0] != 1 {
			t.Fatalf("table %v", table)
		}
		if _, err := lookahead.New(fakeVocab, lookahead.Config{Cost: table}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMeasureCost(t *testing.T) {
	for _, group := range []int{1, 2, 5, 8} {
		c := newFakeCache(true)
		table, err := MeasureCost(t.Context(), c, group, prompt(400, 3))
		if err != nil || (table != nil && len(table) != group) || c.tokens() != 0 {
			t.Errorf("group %d: %v, %v, %d tokens left", group, table, err, c.tokens())
		}
	}
}
