package temper

import (
	"math"

	"qr-gateway/sampler/param"
)

func mixFields() []param.Field {
	return []param.Field{
		number("mix_t_cool", 0.3, 2.2, 0.7, "mix_temperatures: temperature of the cool share."),
		number("mix_t_hot", 0.3, 2.2, 1.3, "mix_temperatures: temperature of the hot share, which the gate sets."),
		number("mix_gate_a", -1e4, 1e4, 1.5, "mix_temperatures: how steeply the share of the hot one rises with entropy, per nat."),
		number("mix_gate_b", -100, 100, 1.3, "mix_temperatures: entropy in the middle of the rise, in nats."),
		number("mix_gate_c", -1e4, 1e4, 0.8, "mix_temperatures: how steeply the share of the hot one rises with varentropy, per nat^2."),
		number("mix_gate_d", -1000, 1000, 1.2, "mix_temperatures: varentropy in the middle of the rise, in nat^2."),
		number("mix_min_p", 0, 0.15, 0.005, "mix_temperatures: min-p of every token."),
	}
}

// mix selects from alpha softmax(l/hot) + (1-alpha) softmax(l/cool), which it hands on as logits at temperature 1.
type mix struct{ cool, hot, a, b, c, d, minP float64 }

func newMix(v param.Values, _ int) (Strategy, error) {
	return &mix{
		v.Number("qr_mix_t_cool"), v.Number("qr_mix_t_hot"), v.Number("qr_mix_gate_a"), v.Number("qr_mix_gate_b"),
		v.Number("qr_mix_gate_c"), v.Number("qr_mix_gate_d"), v.Number("qr_mix_min_p"),
	}, nil
}

// Plan implements [Strategy].
func (s *mix) Plan(in *Input, out *Output) error {
	if err := in.check(); err != nil {
		return err
	}
	x := clamp(s.a*(in.H-s.b)+s.c*(in.VH-s.d), -700, 700)
	if err := out.decide(1); err != nil {
		return err
	}
	out.MinP, out.HasMinP = clampMinP(s.minP), true
	alpha, rest := 1/(1+math.Exp(-x)), 1/(1+math.Exp(x))
	hot, cool := arm{scale: 1 / s.hot, share: alpha}, arm{scale: 1 / s.cool, share: rest}
	if in.Row32 != nil {
		blend(in.Row32, hot, cool, out.row(len(in.Row32)))
	} else {
		blend(in.Row64, hot, cool, out.row(len(in.Row64)))
	}
	out.note("alpha", alpha)
	out.note("t_mix", alpha*s.hot+rest*s.cool)
	return nil
}

// Chosen implements [Strategy].
func (s *mix) Chosen(int32) {}

// arm is one of the two distributions: share * e^(s*scale) / z, where s is how far a logit is below the largest.
type arm struct{ scale, share, z float64 }

// blend writes the logarithm of the mixture into to.
func blend[F float32 | float64](row []F, hot, cool arm, to []float64) {
	top := largest(row)
	hot.z, cool.z = armSum(row, top, hot.scale), armSum(row, top, cool.scale)
	perH, perC := hot.share/hot.z, cool.share/cool.z
	for i, v := range row {
		s := float64(v) - top
		h, c := s*hot.scale, s*cool.scale
		if h >= deepest && c >= deepest && s <= 0 {
			if p := perH*exp(h) + perC*exp(c); p > faint {
				to[i] = log(p)
				continue
			}
		}
		to[i] = logBlend(s, hot, cool)
	}
}

// faint is the probability below which logarithms are added instead, since the sum would lose digits or vanish.
const faint = 1e-290

// logBlend is one place of blend by logarithms. It is right for any s, and slow.
func logBlend(s float64, hot, cool arm) float64 {
	if !(s <= 0 && s >= -math.MaxFloat64) {
		return math.Inf(-1)
	}
	a := s*hot.scale + math.Log(hot.share) - math.Log(hot.z)
	b := s*cool.scale + math.Log(cool.share) - math.Log(cool.z)
	if a < b {
		a, b = b, a
	}
	if math.IsInf(b, -1) {
		return a
	}
	return a + math.Log1p(math.Exp(b-a))
}

// armSum is the sum of e^(s*scale) over what is present.
func armSum[F float32 | float64](row []F, top, scale float64) float64 {
	total := 0.0
	for len(row) > 0 {
		n := min(len(row), blockLen)
		part := 0.0
		for _, v := range row[:n] {
			if s := (float64(v) - top) * scale; s >= deepest && s <= 0 {
				part += exp(s)
			}
		}
		total += part
		row = row[n:]
	}
	return total
}
