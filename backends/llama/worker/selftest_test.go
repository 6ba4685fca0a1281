package worker

import (
	"context"
	"strings"
	"testing"
)

func TestSelfTest(t *testing.T) {
	for _, memory := range memories {
		c := fakeMemory(memory)
		r, err := SelfTest(t.Context(), c, 4, prompt(400, 3))
		if err != nil || !r.ForkOK {
			t.Errorf("%s: %v, %+v", memory, err, r)
		}
		if c.tokens() != 0 {
			t.Errorf("%s: the cache is not empty", memory)
		}
	}
}

func TestSelfTestFindsForksThatSeeEachOther(t *testing.T) {
	c := newFakeCache(false)
	c.leakToForks = true
	r, err := SelfTest(t.Context(), c, 4, prompt(400, 3))
	if err == nil && r.ForkOK {
		t.Errorf("found nothing: %+v", r)
	}
}

func TestSelfTestOnAStoppedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := SelfTest(ctx, newFakeCache(false), 4, prompt(400, 3)); err == nil || !strings.Contains(err.Error(), "self-test") {
		t.Errorf("got %v", err)
	}
}

// TestJudge holds that equal forks are compared by the measure that the limit is in: the last digit of one logit in many is noise.
func TestJudge(t *testing.T) {
	row := func(f func(i int) float32) []float32 {
		out := make([]float32, 1000)
		for i := range out {
			out[i] = f(i)
		}
		return out
	}
	plain := row(func(i int) float32 { return float32(i % 7) })
	paired := row(func(i int) float32 { return float32(i%7) + 1e-6*float32(i%2) })
	digit := row(func(i int) float32 { return float32(i%7) + 1e-5*float32(max(0, i-998)) })
	other := row(func(i int) float32 { return float32(i % 7 * 2) })
	for name, c := range map[string]struct {
		equal []float32
		ok    bool
	}{
		"the same": {plain, true}, "one last digit": {digit, true}, "another token": {other, false},
	} {
		siblings := [][]float32{plain, paired} // as near as noise, as random models have them
		if r := judge(plain, paired, [][]float32{plain, c.equal}, siblings); r.ForkOK != c.ok {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}
