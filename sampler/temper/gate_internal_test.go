package temper

import (
	"errors"
	"testing"
)

// brittle fails as it is told, and notes what it was asked.
type brittle struct {
	raised, plain error
	chosen        []int32
}

func (b *brittle) Plan(_ *Input, out *Output) error {
	out.Temperature = 0.9
	out.note("plain", 1)
	return b.plain
}

func (b *brittle) PlanRaised(_ *Input, out *Output, by float64) error {
	out.Temperature = 0.9 + by
	out.MinP, out.HasMinP = 0.1, true
	out.Row = append(out.Row, 1)
	out.note("raised", 1)
	return b.raised
}

func (b *brittle) Chosen(token int32) { b.chosen = append(b.chosen, token) }

// TestGateFailures: where the raised plan fails the token gets the plain one, whole; where that fails, the token fails.
func TestGateFailures(t *testing.T) {
	errRaised, errPlain := errors.New("raised"), errors.New("plain")
	strong := &Input{Gate: &Evidence{Z: 9, R: 1, Valid: true}}
	b := &brittle{raised: errRaised}
	g := &gate{inner: b, raiser: b, name: "brittle", threshold: 3.5, most: 0.5, fade: 1}
	var out Output
	if err := g.Plan(strong, &out); err != nil {
		t.Fatal(err)
	}
	if out.Temperature != 0.9 || out.HasMinP || len(out.Row) != 0 || out.Notes[0].Name != "plain" {
		t.Errorf("the raised plan failed: %+v", out)
	}
	b.plain = errPlain
	if err := g.Plan(strong, &out); !errors.Is(err, errPlain) {
		t.Errorf("both failed: error %v", err)
	}
	b.raised = nil
	if err := g.Plan(strong, &out); err != nil || out.Temperature != 1.4 {
		t.Errorf("the raised plan works: %v, error %v", out.Temperature, err)
	}
	if err := g.Plan(&Input{}, &out); !errors.Is(err, errPlain) {
		t.Errorf("the plain plan fails: error %v", err)
	}
	if g.Chosen(5); len(b.chosen) != 1 {
		t.Error("the inner strategy was not told the token")
	}
}
