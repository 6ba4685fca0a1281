package vec

import (
	"math"
	"slices"
)

// The exponential works in units of ln2/1024: y = 1024 x/ln2 = n + d with n whole and |d| <= 1/2, and e^x = 2^(n/1024) e^(d ln2/1024). The
// first factor comes from a table of 1024 entries and the exponent bits; the second is a polynomial of degree 3, whose first missing
// term is under 6e-16. What is left is rounding, most of all that of y: the relative error is under 1e-15 and |x| 2^-52 more.
const (
	tabBits = 10
	perNat  = 1 << tabBits / math.Ln2
	c1      = 1 / perNat
	c2      = c1 * c1 / 2
	c3      = c1 * c1 * c1 / 6
	// round is added and taken away to round to a whole number: 1.5*2^52.
	round = 6755399441055744.0
	// roundBits is round as bits; the low bits of round+n are those of n.
	roundBits = 0x4338000000000000
	tiny      = Floor * perNat

	bucketBits = 5 // 32 units, about 0.022 nats a bucket
	nBuckets   = 2048
)

// Floor is where e^x ends: what is further below the largest has no probability.
const Floor = -700.0

type bucket struct {
	mass  float64
	count int
}

// Hist is the distribution softmax((x-max)/T), its mass and its number of tokens collected by how far they are below the largest. Walking
// down the buckets and sorting only the one that is looked for finds any place of the sorted distribution.
type Hist struct {
	tab     [1 << tabBits]float64
	within  [1 << bucketBits]float64 // e^x at the places of a bucket, relative to its first
	first   [nBuckets]float64        // e^x at the first place of each bucket
	buckets [nBuckets]bucket
	max     float64
	scale   float64 // logit to units
	least   float64 // units; what lies below is absent
	far     uint64  // first bucket that may hold what is absent, or the last bucket
}

// NewHist returns an empty histogram.
func NewHist() *Hist {
	h := &Hist{}
	for i := range h.tab {
		h.tab[i] = math.Exp2(float64(i) / (1 << tabBits))
	}
	for i := range h.within {
		h.within[i] = math.Exp2(-float64(i) / (1 << tabBits))
	}
	for i := range h.first {
		h.first[i] = math.Exp2(-float64(i<<bucketBits) / (1 << tabBits))
	}
	return h
}

// Reset empties h. largest is the largest finite logit, t the temperature (over 0), and floor the share of the largest probability below
// which a token is absent.
func (h *Hist) Reset(largest float32, t, floor float64) {
	h.buckets = [nBuckets]bucket{}
	h.max, h.scale = float64(largest), perNat/max(t, 1e-12)
	h.least = max(tiny, (math.Log(floor)-1e-16)*perNat) // e^x is 1 where x is -1e-16
	h.far = uint64(min(max(-h.least/(1<<bucketBits), 1), nBuckets)) - 1
}

// exp returns e^(y ln2/1024) for y between tiny and 0, and the bucket.
func (h *Hist) exp(y float64) (p float64, at int) {
	f := y + round
	n := math.Float64bits(f)
	d := y - (f - round)
	t := h.tab[n&(1<<tabBits-1)]
	t += t * (d * (c1 + d*(c2+d*c3)))
	p = math.Float64frombits(math.Float64bits(t) + n>>tabBits<<52)
	return p, int(min((roundBits-n)>>bucketBits, nBuckets-1))
}

// Add takes in a segment. The exponential is written out: a call per value costs as much as the arithmetic. Masses are relative to the
// first place of their bucket, which spares the exponent bits, until Settle.
func (h *Hist) Add(seg []float32) {
	top, scale, far := h.max, h.scale, h.far
	within, buckets := &h.within, &h.buckets
	for _, v := range seg {
		y := (float64(v) - top) * scale
		f := y + round
		below := roundBits - math.Float64bits(f)
		at := below >> bucketBits
		if at >= far { // also where y is not finite
			h.addFar(y)
			continue
		}
		d := y - (f - round)
		t := within[below&(1<<bucketBits-1)]
		b := &buckets[at]
		b.mass += t + t*(d*(c1+d*(c2+d*c3)))
		b.count++
	}
}

// addFar is Add for what may be absent, and for the last bucket, which has no end.
func (h *Hist) addFar(y float64) {
	if !(y >= h.least && y <= 0) {
		return
	}
	p, at := h.exp(y)
	h.buckets[at].mass += p / h.first[at]
	h.buckets[at].count++
}

// Settle ends the adding.
func (h *Hist) Settle() {
	for i := range h.buckets {
		h.buckets[i].mass *= h.first[i]
	}
}

// Total returns the mass and the number of tokens, largest buckets first.
func (h *Hist) Total() (mass float64, count int) {
	for i := range h.buckets {
		mass += h.buckets[i].mass
		count += h.buckets[i].count
	}
	return mass, count
}

// ByMass returns the first bucket at which the running mass reaches m, or the last that is not empty, and the mass and count before it.
func (h *Hist) ByMass(m float64) (at int, before float64, n int) {
	for i := range h.buckets {
		b := h.buckets[i]
		if b.count == 0 {
			continue
		}
		at = i
		if before+b.mass >= m {
			return at, before, n
		}
		before, n = before+b.mass, n+b.count
	}
	return at, before - h.buckets[at].mass, n - h.buckets[at].count
}

// ByCount is ByMass for a number of tokens, at least 1.
func (h *Hist) ByCount(c int) (at, n int) {
	for i := range h.buckets {
		b := h.buckets[i]
		if b.count == 0 {
			continue
		}
		at = i
		if n+b.count >= c {
			return at, n
		}
		n += b.count
	}
	return at, n - h.buckets[at].count
}

// Cut keeps the first keep tokens of bucket at, whose sorted keys are given, and drops everything after them.
func (h *Hist) Cut(at int, keys []Key, keep int) {
	b := bucket{count: keep}
	for _, k := range keys[:keep] {
		b.mass += h.Prob(k)
	}
	h.buckets[at] = b
	clear(h.buckets[at+1:])
}

// Prob is the unnormalised probability of a token that is present; the largest has 1.
func (h *Hist) Prob(k Key) float64 {
	p, _ := h.exp((float64(k.Value()) - h.max) * h.scale)
	return p
}

// Gather appends the keys of seg that are in bucket at. base is the id of seg's first entry.
func (h *Hist) Gather(dst []Key, at int, base int32, seg []float32) []Key {
	lo, hi := h.bounds(at)
	// One comparison that is hardly ever true. Two, each true as often as not, are guessed wrong too often: they cost more than all the rest.
	middle, half := (float64(lo)+float64(hi))/2, (float64(hi)-float64(lo))/2
	for i, v := range seg {
		if !(math.Abs(float64(v)-middle) <= half) {
			continue
		}
		y := (float64(v) - h.max) * h.scale
		if !(y >= h.least && y <= 0) {
			continue
		}
		if _, b := h.exp(y); b == at {
			dst = append(dst, NewKey(v, base+int32(i)))
		}
	}
	return dst
}

// bounds are logits that no token of the bucket lies outside of; they are a little wide.
func (h *Hist) bounds(at int) (lo, hi float32) {
	lo64 := h.max - float64((at+1)<<bucketBits+1)/h.scale
	hi64 := h.max - float64(at<<bucketBits-1)/h.scale
	if at == nBuckets-1 {
		lo64 = h.max + (tiny-1)/h.scale
	}
	slack := 1e-6 * (1 + math.Abs(h.max) + math.Abs(lo64))
	return float32(lo64 - slack), float32(hi64 + slack)
}

// Sorted sorts keys, largest first, and keeps as many as bucket at has.
func (h *Hist) Sorted(at int, keys []Key) []Key {
	Sort(keys)
	return keys[:min(len(keys), h.buckets[at].count)]
}

// Sort puts the largest key first.
func Sort(keys []Key) {
	slices.Sort(keys)
	slices.Reverse(keys)
}

// SumExp is the sum of e^(x-max) over the finite values of seg, where max is what Reset was given and the temperature 1.
func (h *Hist) SumExp(seg []float32) float64 {
	var a, b float64
	for i, v := range seg {
		y := (float64(v) - h.max) * h.scale
		if !(y >= h.least && y <= 0) {
			continue
		}
		p, _ := h.exp(y)
		if i&1 == 0 {
			a += p
		} else {
			b += p
		}
	}
	return a + b
}
