package temper

import (
	"fmt"

	"qr-gateway/sampler/param"
)

// gateName is the strategy that wraps another.
const gateName = "coherence_gate"

// snap is the boost below which the gate is shut.
const snap = 1e-6

// Raiser is a strategy whose base temperature can be raised for one token, within its own bounds.
type Raiser interface {
	// PlanRaised is Plan with by, finite and not negative, added to the base temperature. Where it returns an error nothing has changed.
	PlanRaised(in *Input, out *Output, by float64) error
}

func gateKind() Kind {
	return Kind{
		gateName,
		"Another strategy whose temperature is raised while the entropy server reports coherence in its draws.",
		gateFields(), newGate,
	}
}

func gateFields() []param.Field {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	return []param.Field{
		{
			Key: "qr_coherence_inner_strategy", Env: "QR_COHERENCE_INNER_STRATEGY", Type: param.TypeString, Enum: names, Default: "fixed",
			Help: "coherence_gate: the strategy whose temperature is raised.",
		},
		number("coherence_threshold", -100, 100, 3.5, "coherence_gate: z-score of the server's statistic from which a draw counts."),
		number("coherence_t_boost_max", 0, 5, 0.5, "coherence_gate: temperature that a draw of correlation 1 adds."),
		number("coherence_ema_alpha", 0, 1, 0.3, "coherence_gate: weight of the newest draw in the running boost."),
	}
}

// gate raises the temperature of its inner strategy by a running mean of what the draws before this token earned.
type gate struct {
	inner                 Strategy
	raiser                Raiser // inner, where it can be raised
	name                  string
	threshold, most, fade float64

	boost, marked float64
}

// innerKind is the strategy to be wrapped. A name that is unknown, or the gate's own, means fixed.
func innerKind(v param.Values) Kind {
	name := v.Text("qr_coherence_inner_strategy")
	for _, k := range kinds {
		if k.Name == name {
			return k
		}
	}
	return kinds[0]
}

// newGate makes the gate and its inner strategy.
func newGate(v param.Values, nVocab int) (Strategy, error) {
	kind := innerKind(v)
	inner, err := kind.New(v, nVocab)
	if err != nil {
		return nil, fmt.Errorf("make inner strategy of %s: %w", gateName, err)
	}
	g := &gate{
		inner: inner, name: kind.Name,
		threshold: v.Number("qr_coherence_threshold"), most: v.Number("qr_coherence_t_boost_max"), fade: v.Number("qr_coherence_ema_alpha"),
	}
	g.raiser, _ = inner.(Raiser)
	return g, nil
}

// Plan implements [Strategy]. A raised plan that fails is made again without the boost.
func (g *gate) Plan(in *Input, out *Output) error {
	g.take(in.Gate)
	if err := g.plan(in, out); err != nil {
		return fmt.Errorf("%s: %w", g.name, err)
	}
	g.describe(in.Gate, out)
	return nil
}

func (g *gate) plan(in *Input, out *Output) error {
	mark := len(out.Notes)
	if g.boost > 0 && g.raiser != nil {
		if g.raiser.PlanRaised(in, out, g.boost) == nil {
			return nil
		}
		out.Notes, out.Row, out.MinP, out.HasMinP = out.Notes[:mark], out.Row[:0], 0, false
	}
	if err := g.inner.Plan(in, out); err != nil {
		return err
	}
	if t := out.Temperature + g.boost; g.raiser == nil && finite(t) {
		out.Temperature = t
	}
	return nil
}

// take lets the running boost learn the draw of the token before. No draw ends it at once; one that earned nothing lets it fade.
func (g *gate) take(e *Evidence) {
	if e == nil {
		g.boost = 0
		return
	}
	g.boost = g.fade*g.earned(e) + (1-g.fade)*g.boost
	if g.boost < snap {
		g.boost = 0
	}
}

// earned is what one draw is worth. A statistic that is not finite is worth nothing, and a correlation over 1 no more than 1.
func (g *gate) earned(e *Evidence) float64 {
	if !e.Valid || !finite(e.Z) || !finite(e.R) || e.Z < g.threshold {
		return 0
	}
	return g.most * clamp(e.R, 0, 1)
}

func (g *gate) describe(e *Evidence, out *Output) {
	out.note("gate_open", number01(g.boost > 0))
	out.note("gate_boost", g.boost)
	out.note("coherence_valid", number01(e != nil && e.Valid))
	if e != nil && finite(e.Z) {
		out.note("coherence_z", e.Z)
	}
	out.say("inner", g.name)
}

func number01(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// Chosen implements [Strategy].
func (g *gate) Chosen(token int32) { g.inner.Chosen(token) }
