package amplify_test

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"qr-gateway/sampler/amplify"
)

// draws is how many numbers a statistical test takes: all that the claims are about with QR_VERIFY=1, else fewer. Seeds are fixed, so a
// test that passed passes again.
func draws() int {
	if verify() {
		return 1_000_000
	}
	return 50_000
}

func verify() bool { return os.Getenv("QR_VERIFY") == "1" }

// byteSums is the exact law of the sum of n uniform bytes, by convolution with a window of 256.
func byteSums(n int) []float64 {
	law := []float64{1}
	for range n {
		next := make([]float64, len(law)+255)
		window := 0.0
		for s := range next {
			if s < len(law) {
				window += law[s]
			}
			if s >= 256 {
				window -= law[s-256]
			}
			next[s] = max(window, 0) / 256
		}
		law = next
	}
	return law
}

// numberOf is the number that a makes of n bytes that add up to sum.
func numberOf(t *testing.T, a amplify.Amplifier, block []byte, sum int) float64 {
	t.Helper()
	for i := range block {
		block[i] = byte(min(sum, 255))
		sum -= int(block[i])
	}
	r, err := a.Read(block)
	if err != nil {
		t.Fatal(err)
	}
	return r.U
}

// distance is how far u is from the middle of its step in the exact law, at worst: what is left of the distance from uniform once the
// steps themselves, which no function of a sum can avoid, are taken out.
func distance(t *testing.T, std float64, n int) float64 {
	t.Helper()
	cfg := amplify.DefaultConfig()
	cfg.Std = std
	a, block := open(t, amplify.Name, cfg), make([]byte, n)
	below, worst := 0.0, 0.0
	for sum, p := range byteSums(n) {
		if p > 1e-12 {
			worst = max(worst, math.Abs(below+p/2-numberOf(t, a, block, sum)))
		}
		below += p
	}
	return worst
}

// TestZScoreExact: for bytes that are uniform u is, up to what the central limit theorem leaves. The first term of that is
// kurtosis/(24 n) He3 phi, at most 0.0275/n. A standard deviation of the continuous uniform is wrong by 0.00095 at any n.
func TestZScoreExact(t *testing.T) {
	sizes := []int{16, 64, 128}
	if verify() {
		sizes = append(sizes, 256, 512)
	}
	for _, n := range sizes {
		if d := distance(t, amplify.ByteStd, n); d*float64(n) > 0.0285 {
			t.Errorf("%d bytes: u is %v from uniform, want at most %v", n, d, 0.0285/float64(n))
		}
		if d := distance(t, amplify.CompatStd, n); n >= 64 && d < 0.0008 {
			t.Errorf("%d bytes: the wrong deviation is only %v from uniform: this test sees nothing", n, d)
		}
	}
}

// score turns a chi-square of k degrees of freedom into a standard normal (Wilson and Hilferty).
func score(chi2 float64, k int) float64 {
	v := 2 / (9 * float64(k))
	return (math.Cbrt(chi2/float64(k)) - (1 - v)) / math.Sqrt(v)
}

// chiSquare compares counts with shares.
func chiSquare(counts, share []float64) float64 {
	n, x := 0.0, 0.0
	for _, c := range counts {
		n += c
	}
	for i, c := range counts {
		x += (c - n*share[i]) * (c - n*share[i]) / (n * share[i])
	}
	return x
}

// sample is what many draws of one size gave.
type sample struct {
	counts []float64 // of u, in bins of equal width
	z2     float64   // mean of z^2
	n      int       // bytes a draw
}

const bins = 40

// read draws blocks of n perfect bytes.
func read(t *testing.T, std float64, n, draws int) sample {
	t.Helper()
	cfg := amplify.DefaultConfig()
	cfg.Std = std
	a, r, block := open(t, amplify.Name, cfg), rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}), make([]byte, n)
	s := sample{counts: make([]float64, bins), n: n}
	for range draws {
		if _, err := r.Read(block); err != nil {
			t.Fatal(err)
		}
		got, err := a.Read(block)
		if err != nil {
			t.Fatal(err)
		}
		s.counts[int(got.U*bins)]++
		s.z2 += got.Z * got.Z / float64(draws)
	}
	return s
}

// spread is how far the mean of z^2 is from 1, in standard errors. The kurtosis of a sum of n bytes is 3-1.2/n.
func (s sample) spread(draws int) float64 {
	return (s.z2 - 1) / math.Sqrt((2-1.2/float64(s.n))/float64(draws))
}

// shares are those of the bins by the exact law, or all equal where that is too long to compute: there a bin has over 600 steps.
func shares(t *testing.T, n int) []float64 {
	t.Helper()
	out := make([]float64, bins)
	if n > 1024 {
		for i := range out {
			out[i] = 1.0 / bins
		}
		return out
	}
	a, block := open(t, amplify.Name, amplify.DefaultConfig()), make([]byte, n)
	for sum, p := range byteSums(n) {
		if p > 0 {
			out[int(numberOf(t, a, block, sum)*bins)] += p
		}
	}
	return out
}

// TestZScoreUniform draws blocks of real bytes. Bins are compared with the exact law, which [TestZScoreExact] holds to be uniform, or
// with equal shares. A wrong standard deviation shows in the spread of z.
func TestZScoreUniform(t *testing.T) {
	sizes, wrong := []int{16, 64, 256}, 72.0
	if verify() {
		sizes, wrong = append(sizes, 20480), amplify.CompatStd
	}
	n := draws()
	for _, size := range sizes {
		s := read(t, amplify.ByteStd, size, n)
		if g := score(chiSquare(s.counts, shares(t, size)), bins-1); math.Abs(g) > 4 {
			t.Errorf("%d bytes: chi-square of %d numbers is %.1f standard deviations off", size, n, g)
		}
		if g := s.spread(n); math.Abs(g) > 4 {
			t.Errorf("%d bytes: the spread of z is %.1f standard errors off", size, g)
		}
	}
	if g := read(t, wrong, 64, n).spread(n); g < 4 {
		t.Errorf("a standard deviation of %v is only %.1f standard errors off: this test sees nothing", wrong, g)
	}
}

// TestECDFUniform draws from many calibrations, once from each: the draw and its N calibration means are exchangeable, so the place of
// the draw among them is uniform over N+1, exactly. Where means are equal their places are shared out. The reference's
// (rank+1)/(N+1) never falls into the first.
func TestECDFUniform(t *testing.T) {
	const size, blocks = 64, 20
	r := rand.NewChaCha8([32]byte{9})
	ours, theirs := make([]float64, blocks+1), make([]float64, blocks+1)
	share := make([]float64, blocks+1)
	for i := range share {
		share[i] = 1.0 / (blocks + 1)
	}
	n, mean := draws(), 0.0
	for range n {
		got := drawECDF(t, r, size, blocks)
		mean += got.U / float64(n)
		// u is (below+rank+1)/(2(N+1)): places below to rank are taken.
		below := int(math.Round(got.U*2*(blocks+1))) - 1 - got.Rank
		for p := below; p <= got.Rank; p++ {
			ours[p] += 1 / float64(got.Rank-below+1)
		}
		theirs[min(got.Rank+1, blocks)]++
	}
	if g := score(chiSquare(ours, share), blocks); math.Abs(g) > 4 {
		t.Errorf("chi-square of %d places is %.1f standard deviations off", n, g)
	}
	if g := (mean - 0.5) * math.Sqrt(12*float64(n)); math.Abs(g) > 4 {
		t.Errorf("the mean of u is %v, %.1f standard errors off", mean, g)
	}
	if g := score(chiSquare(theirs, share), blocks); g < 4 {
		t.Errorf("places moved by one are only %.1f standard deviations off: this test sees nothing", g)
	}
}

// drawECDF calibrates with blocks of r and reads one more.
func drawECDF(t *testing.T, r *rand.ChaCha8, size, blocks int) amplify.Reading {
	t.Helper()
	block, means := make([]byte, size), make([]float64, blocks)
	for i := range means {
		if _, err := r.Read(block); err != nil {
			t.Fatal(err)
		}
		means[i] = float64(amplify.Sum(block)) / float64(size)
	}
	cal, err := amplify.Calibrate(size, means)
	if err != nil {
		t.Fatal(err)
	}
	a, err := amplify.NewECDF(cal.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(block); err != nil {
		t.Fatal(err)
	}
	got, err := a.Read(block)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestCalibrationCentres: a source whose bytes stop at 239 decides nearly always the same uncalibrated, and uniformly once measured. What
// is left is the error of the measurement itself, 1/sqrt(blocks) in z.
func TestCalibrationCentres(t *testing.T) {
	const size, blocks, n = 256, 40_000, 10_000
	r := rand.New(rand.NewPCG(3, 4))
	draw := func(block []byte) []byte {
		for i := range block {
			block[i] = byte(r.IntN(240))
		}
		return block
	}
	means, block := make([]float64, blocks), make([]byte, size)
	for i := range means {
		means[i] = float64(amplify.Sum(draw(block))) / size
	}
	cal, err := amplify.Calibrate(size, means)
	if err != nil {
		t.Fatal(err)
	}
	raw, measured, ranked := open(t, amplify.Name, amplify.DefaultConfig()), open(t, amplify.Name, cal.Config()), open(t, amplify.NameECDF, cal.Config())
	var sums [3]float64
	counts, share := make([]float64, bins), shares(t, 20480)
	for range n {
		draw(block)
		for i, a := range []amplify.Amplifier{raw, measured, ranked} {
			got, err := a.Read(block)
			if err != nil {
				t.Fatal(err)
			}
			sums[i] += got.U / n
			if a == measured {
				counts[int(got.U*bins)]++
			}
		}
	}
	if sums[0] > 0.15 {
		t.Errorf("uncalibrated: the mean of u is %v, want about 0.13", sums[0])
	}
	for i, name := range []string{"zscore_mean", "ecdf"} {
		if se := 1 / math.Sqrt(12*n); math.Abs(sums[i+1]-0.5) > 4*se {
			t.Errorf("%s, calibrated: the mean of u is %v", name, sums[i+1])
		}
	}
	if g := score(chiSquare(counts, share), bins-1); math.Abs(g) > 4 {
		t.Errorf("zscore_mean, calibrated: chi-square is %.1f standard deviations off", g)
	}
}
