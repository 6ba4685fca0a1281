package measure

import "math"

// The sum of n bytes is a whole number, so a block's u takes only certain values, and a test for continuous numbers (Kolmogorov-Smirnov)
// rejects perfect sources far too often. Here every bin gets exactly the probability of the sums that fall into it.

// exactBlocks is up to what size of a block the distribution of its sum is computed term by term. Above, the normal one with the terms
// for kurtosis is closer than 1e-6.
const exactBlocks = 128

// sums is the distribution of the sum of the bytes of a block.
type sums struct {
	n         int
	mean, std float64   // of the sum
	kurtosis  float64   // excess, of the sum
	exact     []float64 // P(S <= s) of uniform bytes, or nil
}

func newSums(cfg Config) sums {
	n := float64(cfg.BlockBytes)
	if cfg.baseline() {
		return sums{n: cfg.BlockBytes, mean: n * cfg.Mean, std: math.Sqrt(n) * cfg.Std}
	}
	const byteKurtosis = -1.2 * (65536 + 1) / (65536 - 1) // of a discrete uniform variable
	d := sums{n: cfg.BlockBytes, mean: n * UniformMean, std: math.Sqrt(n) * UniformStd, kurtosis: byteKurtosis / n}
	if cfg.BlockBytes <= exactBlocks {
		d.exact = exactSums(cfg.BlockBytes)
	}
	return d
}

// exactSums adds the bytes one at a time: each step is a running sum over 256 terms.
func exactSums(n int) []float64 {
	p := []float64{1}
	for range n {
		next := make([]float64, len(p)+255)
		window := 0.0
		for s := range next {
			if s < len(p) {
				window += p[s]
			}
			if s >= 256 {
				window -= p[s-256]
			}
			next[s] = max(window, 0) / 256
		}
		p = next
	}
	for s := 1; s < len(p); s++ {
		p[s] += p[s-1]
	}
	return p
}

// below is P(S < s).
func (d sums) below(s int) float64 {
	switch {
	case s <= 0:
		return 0
	case s > 255*d.n:
		return 1
	case d.exact != nil:
		return min(d.exact[s-1], 1)
	}
	x := (float64(s) - 0.5 - d.mean) / d.std
	pdf := math.Exp(-x*x/2) / math.Sqrt(2*math.Pi)
	// Edgeworth's second term; Sheppard's correction puts the lattice's own variance right.
	shift := pdf * (d.kurtosis/24*(x*x*x-3*x) + x/(24*d.std*d.std))
	return min(max(phi(x)-shift, 0), 1)
}

// u is what a sum becomes.
func (d sums) u(s int) float64 { return phi((float64(s) - d.mean) / d.std) }

// edges are the smallest sums whose u lies in each of k bins of equal width; the last is past all sums.
func (d sums) edges(k int) []int {
	out := make([]int, k+1)
	for j := 1; j < k; j++ {
		lo, hi := 0, 255*d.n+1
		for lo < hi {
			mid := (lo + hi) / 2
			if d.u(mid) >= float64(j)/float64(k) {
				hi = mid
			} else {
				lo = mid + 1
			}
		}
		out[j] = lo
	}
	out[k] = 255*d.n + 1
	return out
}

// bin is one of the histogram of u.
type bin struct {
	count    int
	expected float64
}

// bins counts the sums of blocks in k bins of u.
func (d sums) bins(all []uint64, k int) []bin {
	edges := d.edges(k)
	out := make([]bin, k)
	for j := range out {
		out[j].expected = float64(len(all)) * (d.below(edges[j+1]) - d.below(edges[j]))
	}
	for _, s := range all {
		j := min(int(d.u(int(s))*float64(k)), k-1)
		for j > 0 && int(s) < edges[j] { // the product may round to the next bin
			j--
		}
		for j < k-1 && int(s) >= edges[j+1] {
			j++
		}
		out[j].count++
	}
	return out
}

// merged joins neighbours until each is expected at least least times, as the chi-square test needs.
func merged(bins []bin, least float64) []bin {
	var out []bin
	var open bin
	for _, b := range bins {
		open.count += b.count
		open.expected += b.expected
		if open.expected >= least {
			out = append(out, open)
			open = bin{}
		}
	}
	if len(out) == 0 {
		return []bin{open}
	}
	out[len(out)-1].count += open.count
	out[len(out)-1].expected += open.expected
	return out
}
