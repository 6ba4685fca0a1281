package drill_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"qr-gateway/gateway/drill"
)

func targets() drill.Targets {
	return drill.Targets{Gateways: []string{"g1", "g2"}, Workers: []string{"w1", "w2", "w3"}, Server: "redis", Lines: []string{"l1", "l2"}}
}

func schedule(span time.Duration) drill.Schedule {
	return drill.Schedule{Span: span, Gap: time.Second, Min: 300 * time.Millisecond, Max: 3 * time.Second}
}

// A seed has one plan, which keeps to its span and does one thing at a time to a target.
func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		s := schedule(time.Duration(rapid.IntRange(5, 120).Draw(t, "span")) * time.Second)
		plan := drill.Plan(rand.New(rand.NewPCG(seed, 0)), targets(), s)
		if diff := cmp.Diff(plan, drill.Plan(rand.New(rand.NewPCG(seed, 0)), targets(), s)); diff != "" {
			t.Fatalf("one seed, two plans: %s", diff)
		}
		free := map[string]time.Duration{}
		for _, f := range plan {
			if f.At < free[f.Target] || f.End() > s.Span || f.For < s.Min || f.For > s.Max {
				t.Fatalf("%s, the one before on it until %s", f, free[f.Target])
			}
			free[f.Target] = f.End()
		}
	})
}

func TestPlanHasEveryKind(t *testing.T) {
	seen := map[drill.Kind]bool{}
	for _, f := range drill.Plan(rand.New(rand.NewPCG(1, 1)), targets(), schedule(2*time.Minute)) {
		seen[f.Kind] = true
	}
	all := []drill.Kind{
		drill.Kill, drill.Wipe, drill.Flush, drill.Freeze, drill.Cut, drill.HoldUp, drill.HoldIn, drill.HoleUp, drill.HoleIn, drill.LoseUp, drill.LoseIn,
		drill.Reset, drill.Slow,
	}
	for _, k := range all {
		if !seen[k] {
			t.Errorf("two minutes without %s", k)
		}
	}
}
