package measure

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"qr-gateway/entropy/health"
)

// uBins is the most bins of the histogram of u; few blocks make fewer.
const uBins = 100

// Report judges what was added so far: at least [MinBlocks] blocks.
func (m *Meter) Report() *Report {
	n, mean, variance := m.moments()
	r := &Report{
		Source: m.first.Source, Device: m.first.Device, Class: m.first.Class, When: m.first.Requested,
		Blocks: len(m.sums), BlockBytes: m.cfg.BlockBytes, Latency: percentiles(m.latency),
		Mean: mean, Std: math.Sqrt(variance), Ones: float64(m.ones()) / (8 * n),
		MinEntropy: health.MinEntropy(&m.bytes), Duplicates: m.duplicates, Flags: m.flags,
	}
	if s := m.total.Seconds(); s > 0 {
		r.Rate = n / s
	}
	for bit, ones := range m.bits {
		r.OnesByBit[bit] = float64(ones) / n
	}
	for k := range m.lags {
		r.Lags[k] = m.lags[k].correlation(variance)
	}
	r.Series = Series{ByteCounts: m.bytes[:], Latency: m.latency, Sums: m.sums}
	for _, s := range m.sums {
		z := m.z(s)
		r.Series.Z = append(r.Series.Z, z)
		r.MeanZ += z / math.Sqrt(float64(len(m.sums)))
		r.ZVariance += z * z / float64(len(m.sums))
	}
	m.judge(r, n)
	return r
}

// judge writes the verdicts.
func (m *Meter) judge(r *Report, n float64) {
	raw := m.cfg.Health.ClaimedEntropy < 8 || m.cfg.baseline()
	uniform := func(name, value string, p float64) { r.verdict(name, value, p, raw) }
	r.Verdicts = append(r.Verdicts, m.healthVerdict(), m.duplicateVerdict())
	stat, p := m.chiSquare(n)
	uniform("bytes uniform", fmt.Sprintf("chi-square %.1f with 255 degrees of freedom", stat), p)
	bitZ := (r.Ones - 0.5) * 2 * math.Sqrt(8*n)
	uniform("bits balanced", fmt.Sprintf("%.6f ones, z %+.2f", r.Ones, bitZ), twoSided(bitZ))
	uniform("lags 1 to 8", m.lagText(r), m.ljungBox(r))
	r.verdict("byte mean", fmt.Sprintf("%.4f, z %+.2f", r.Mean, r.MeanZ), twoSided(r.MeanZ), false)
	r.verdict("spread of z", fmt.Sprintf("variance %.4f, 1 is right", r.ZVariance), m.spread(r), false)
	r.verdict("u uniform", m.uTest(r), r.uP(), false)
	r.verdict("min-entropy", fmt.Sprintf("%.2f bits a byte (most common value), %v claimed", r.MinEntropy, m.cfg.Health.ClaimedEntropy), m.mostCommon(n), false)
}

// verdict adds a test whose outcome is a chance.
func (r *Report) verdict(name, value string, p float64, raw bool) {
	v := Verdict{Name: name, Value: value, P: &p, Word: Good}
	switch {
	case raw && p < againBelow:
		v.Word = Info
	case p < badBelow:
		v.Word = Bad
	case p < againBelow:
		v.Word = Again
	}
	r.Verdicts = append(r.Verdicts, v)
}

// healthVerdict is that of the two tests on raw bytes.
func (m *Meter) healthVerdict() Verdict {
	run, proportion := m.monitor.Cutoffs()
	v := Verdict{Name: "health tests", Word: Good, Value: fmt.Sprintf("longest run %d (limit %d), most in a window %d (limit %d)", m.run, run, m.count, proportion)}
	if len(m.alarms) > 0 {
		v.Word = Bad
		var parts []string
		for name, n := range m.alarms {
			parts = append(parts, fmt.Sprintf("%d blocks %s", n, name))
		}
		slices.Sort(parts)
		v.Value += ": " + strings.Join(parts, ", ")
	}
	return v
}

// duplicateVerdict leaves out blocks so short that chance repeats them.
func (m *Meter) duplicateVerdict() Verdict {
	v := Verdict{Name: "duplicates", Value: fmt.Sprintf("%d of %d blocks", m.duplicates, len(m.sums)), Word: Good}
	pairs := float64(len(m.sums)) * float64(len(m.sums)) / 2
	chance := pairs * math.Exp2(-m.cfg.Health.ClaimedEntropy*float64(m.cfg.BlockBytes))
	switch {
	case m.duplicates > 0 && chance > badBelow:
		v.Word = Info
		v.Value += ", blocks so short repeat by chance"
	case m.duplicates > 0:
		v.Word = Bad
	}
	return v
}

// chiSquare of the counts of bytes against uniform ones.
func (m *Meter) chiSquare(n float64) (stat, p float64) {
	for _, c := range m.bytes {
		d := float64(c) - n/256
		stat += d * d / (n / 256)
	}
	return stat, distuv.ChiSquared{K: 255}.Survival(stat)
}

func twoSided(z float64) float64 { return math.Erfc(math.Abs(z) / math.Sqrt2) }

func (m *Meter) lagText(r *Report) string {
	k := 0
	for i, c := range r.Lags {
		if math.Abs(c) > math.Abs(r.Lags[k]) {
			k = i
		}
	}
	return fmt.Sprintf("largest autocorrelation %+.5f at lag %d", r.Lags[k], k+1)
}

// ljungBox is the chance of all eight together: each lag's correlation has variance 1 over its number of pairs.
func (m *Meter) ljungBox(r *Report) float64 {
	stat, k := 0.0, 0.0
	for i, c := range r.Lags {
		if m.lags[i].n > 0 {
			stat += c * c * float64(m.lags[i].n)
			k++
		}
	}
	if k == 0 {
		return 1
	}
	return distuv.ChiSquared{K: k}.Survival(stat)
}

// spread is the chance of the variance of z, both ways. The sum of squares has a chi-square distribution as far as z is normal; the
// kurtosis of a sum of bytes widens or narrows it, which matters for short blocks.
func (m *Meter) spread(r *Report) float64 {
	n := float64(len(m.sums))
	k := m.dist.kurtosis
	df := n / (1 + k/2) // matches the variance of the sum of squares, n(2+k)
	stat := r.ZVariance * df
	c := distuv.ChiSquared{K: df}
	return min(1, 2*min(c.Survival(stat), c.CDF(stat)))
}

// uTest fills the histogram of u.
func (m *Meter) uTest(r *Report) string {
	k := min(uBins, max(4, len(m.sums)/10))
	for _, b := range m.dist.bins(m.sums, k) {
		r.Series.UCounts = append(r.Series.UCounts, b.count)
		r.Series.UExpected = append(r.Series.UExpected, b.expected)
	}
	return fmt.Sprintf("%d numbers in %d bins with their exact probabilities", len(m.sums), len(r.uBins()))
}

func (r *Report) uBins() []bin {
	bins := make([]bin, len(r.Series.UCounts))
	for i := range bins {
		bins[i] = bin{r.Series.UCounts[i], r.Series.UExpected[i]}
	}
	return merged(bins, 5)
}

// uP is the chance of the histogram of u.
func (r *Report) uP() float64 {
	bins, stat := r.uBins(), 0.0
	if len(bins) < 2 {
		return 1
	}
	for _, b := range bins {
		d := float64(b.count) - b.expected
		stat += d * d / b.expected
	}
	return distuv.ChiSquared{K: float64(len(bins) - 1)}.Survival(stat)
}

// mostCommon is the chance that the most common byte is so common if no byte's probability is above the claim.
func (m *Meter) mostCommon(n float64) float64 {
	claim := math.Exp2(-m.cfg.Health.ClaimedEntropy)
	most := float64(slices.Max(m.bytes[:]))
	tail := distuv.Binomial{N: n, P: claim}.Survival(most - 1)
	return min(1, tail/claim) // at most 1/claim bytes can be as common as claimed
}

func percentiles(seconds []float64) Latency {
	s := slices.Clone(seconds)
	slices.Sort(s)
	at := func(p float64) float64 { return s[min(int(p*float64(len(s))), len(s)-1)] }
	return Latency{P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: s[len(s)-1]}
}
