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
