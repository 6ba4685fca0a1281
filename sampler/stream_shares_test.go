package sampler_test

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"testing"

	"qr-gateway/sampler"
)

// law is the distribution that a cut of a row has, worked out the long way.
type law struct {
	rank []int32   // of every token; -1 where it is cut off
	cdf  []float64 // by rank, divided by its own total
}

// lawOf sorts the row, weighs it, cuts it and adds it up, in float64.
func lawOf(row []float32, c sampler.Cut) *law {
	order := make([]int32, len(row))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(row[b], row[a]), cmp.Compare(a, b)) })
	if c.TopK > 0 {
		order = order[:min(c.TopK, len(order))]
	}
	at := func(i int, t float64) float64 { return math.Exp((float64(row[order[i]]) - float64(row[order[0]])) / t) }
	n, t := len(order), c.Temperature
	if c.TruncateFirst {
		t = 1
	}
	n = sort.Search(n, func(i int) bool { return at(i, t) < c.MinP })
	l := &law{rank: make([]int32, len(row)), cdf: make([]float64, n)}
	sum := func() (total float64) {
		for i := range l.cdf {
			total += at(i, c.Temperature)
			l.cdf[i] = total
		}
		return total
	}
	if total := sum(); c.TopP < 1 {
		l.cdf = l.cdf[:1+sort.SearchFloat64s(l.cdf, c.TopP*total)]
	}
	total := sum()
	for i := range l.rank {
		l.rank[i] = -1
	}
	for i := range l.cdf {
		l.cdf[i] /= total
		l.rank[order[i]] = int32(i)
	}
	return l
}

// bins cuts the ranks that numbers over from choose into bins of a share of at least least each, the last of which are small and grow towards
// the head, up to one in 128 where that is more. It returns the first rank of each bin and its share of (from,1).
func (l *law) bins(from, least float64) (first []int, share []float64) {
	end, low := 1.0, sort.SearchFloat64s(l.cdf, from)
	for i, want := len(l.cdf)-1, least; i >= low; i-- {
		before := from
		if i > low {
			before = l.cdf[i-1]
		}
		if mass := (end - before) / (1 - from); mass >= want || i == low {
			first, share = append(first, i), append(share, mass)
			end, want = before, min(2*want, max(least, 1.0/128))
		}
	}
	if n := len(share); n > 1 && share[n-1] < least { // what is left at the head joins its neighbour
		share[n-2] += share[n-1]
		first[n-2], first, share = first[n-1], first[:n-1], share[:n-1]
	}
	slices.Reverse(first)
	slices.Reverse(share)
	return first, share
}

// deviates compares draws by numbers over from with the law, and returns by how many standard deviations their chi-square is too large
// (Wilson and Hilferty's cube root), and the number of bins.
func (l *law) deviates(t *testing.T, draws int, from float64, r *rand.Rand, f func(u float64) (int32, error)) (sigmas float64, bins int) {
	t.Helper()
	first, share := l.bins(from, 12/float64(draws))
	seen := make([]int, len(first))
	for range draws {
		token, err := f(from + (1-from)*(r.Float64()+0x1p-54))
		if err != nil {
			t.Fatal(err)
		}
		rank := int(l.rank[token])
		if rank < 0 {
			return math.Inf(1), len(first) // it is cut off
		}
		seen[max(sort.SearchInts(first, rank+1)-1, 0)]++
	}
	chi := 0.0
	for i, n := range seen {
		want := share[i] * float64(draws)
		chi += (float64(n) - want) * (float64(n) - want) / want
	}
	df := float64(len(seen) - 1)
	if df == 0 {
		return 0, len(seen)
	}
	return (math.Cbrt(chi/df) - (1 - 2/(9*df))) / math.Sqrt(2/(9*df)), len(seen)
}

// tailFrom is where the tail begins, which is tested on its own: it is where a running sum that loses digits goes wrong, and one draw in 500.
const tailFrom = 1 - 1.0/512

// shareCase is a way to cut one shape of a distribution. A further one of its kind takes a tenth of the long form's draws.
type shareCase struct {
	shape   string
	cut     sampler.Cut
	further bool
}

func shareCases() map[string]shareCase {
	return map[string]shareCase{
		"nothing cut, zipf":  {"zipf", sampler.Cut{Temperature: 1, TopP: 1}, false},
		"nothing cut, slope": {"slope", sampler.Cut{Temperature: 1, TopP: 1}, true},
		"nothing cut, bulk":  {"bulk", sampler.Cut{Temperature: 1, TopP: 1}, true},
		"temperature":        {"heavy", sampler.Cut{Temperature: 0.7, TopP: 1}, false},
		"top-k few":          {"zipf", sampler.Cut{Temperature: 1, TopP: 1, TopK: 50}, false},
		"top-k many":         {"slope", sampler.Cut{Temperature: 1.3, TopP: 1, TopK: 40000}, true},
		"top-p":              {"bulk", sampler.Cut{Temperature: 1, TopP: 0.9}, false},
		"top-p nearly all":   {"zipf", sampler.Cut{Temperature: 1.5, TopP: 0.999}, true},
		"min-p":              {"heavy", sampler.Cut{Temperature: 1, TopP: 1, MinP: 1e-6}, false},
		"truncate first":     {"bulk", sampler.Cut{Temperature: 1.5, TopP: 0.95, MinP: 0.01, TruncateFirst: true}, false},
		"all of them":        {"slope", sampler.Cut{Temperature: 0.8, TopP: 0.95, MinP: 0.05, TopK: 30000}, false},
	}
}

// TestShares draws tokens of a real vocabulary and compares how often each part of it comes up with softmax, over everything and over the tail
// alone.
func TestShares(t *testing.T) {
	draws, tail, picks := 1000, 1000, 1 // 22,000 in all
	switch {
	case os.Getenv("QR_VERIFY") == "1": // the row is loaded once for so many choices, as it would be no other the next time
		draws, tail, picks = 1000000, 20000, 1000
	case raceEnabled || testing.Short():
		draws, tail = 200, 200
	}
	for name, c := range shareCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			draws := draws
			if c.further && draws > 1e5 {
				draws /= 10
			}
			row := to32(bigRow(c.shape))
			l, s, r := lawOf(row, c.cut), sampler.New(len(row)), rand.New(rand.NewPCG(11, 12))
			n := 0
			f := func(u float64) (int32, error) { // is s.Choose, where picks is 1
				if n%picks == 0 {
					if err := s.Load(row, nil); err != nil {
						return 0, err
					}
				}
				n++
				d, err := s.Pick(c.cut, u)
				return d.Token, err
			}
			for _, part := range []struct {
				from  float64
				draws int
			}{{0, draws}, {tailFrom, tail}} {
				sigmas, bins := l.deviates(t, part.draws, part.from, r, f)
				t.Logf("%d draws over %v, %d candidates in %d bins: %+.2f standard deviations", part.draws, part.from, len(l.cdf), bins, sigmas)
				if sigmas > 5 {
					t.Errorf("%d draws over %v are %.1f standard deviations from softmax", part.draws, part.from, sigmas)
				}
			}
		})
	}
}

// TestSharesTellWrongTails: the same test refuses a chooser whose running sum is in float32. The sum takes in nothing more once it is near 1, so
// that what is left goes to the last token of the vocabulary.
func TestSharesTellWrongTails(t *testing.T) {
	const draws = 1000
	for _, shape := range []string{"zipf", "slope", "bulk", "heavy"} {
		row := to32(bigRow(shape))
		l := lawOf(row, sampler.Cut{Temperature: 1, TopP: 1})
		byRank := make([]int32, len(row))
		for token, rank := range l.rank {
			byRank[rank] = int32(token)
		}
		cdf, sum, before := make([]float32, len(row)), float32(0), 0.0
		for i, share := range l.cdf {
			sum += float32(share - before)
			cdf[i], before = sum, share
		}
		wrong := func(u float64) (int32, error) {
			i := sort.Search(len(cdf), func(i int) bool { return float64(cdf[i]) >= u })
			return byRank[min(i, len(cdf)-1)], nil
		}
		right := func(u float64) (int32, error) { return byRank[sort.SearchFloat64s(l.cdf, u)], nil }
		r := rand.New(rand.NewPCG(5, 6))
		bad, _ := l.deviates(t, draws, tailFrom, r, wrong)
		good, bins := l.deviates(t, draws, tailFrom, r, right)
		t.Logf("%s: a float32 sum is %.2g short of 1 and %.1f standard deviations off over %d bins, float64 %.1f", shape, 1-sum, bad, bins, good)
		if bad < 10 || good > 5 {
			t.Errorf("%s: wrong tail %.1f, right tail %.1f standard deviations", shape, bad, good)
		}
	}
}

// Streams that take turns at one sampler decide as those with one of their own.
func TestStreamsShareASampler(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	shared := sampler.New(600)
	p := sampler.Defaults()
	seed := int64(5)
	p.Seed, p.Strategy, p.PresencePenalty = &seed, "edt", 0.5
	var apart, together [3]*sampler.Stream
	for i := range apart {
		apart[i], together[i] = sampler.NewStream(600), sampler.NewStream(600)
		if err := errors.Join(apart[i].Begin(&p, nil), together[i].Begin(&p, nil)); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		for i := range apart {
			row := make([]float32, 600)
			for j := range row {
				row[j] = float32(rng.NormFloat64() * 3)
			}
			want, err := apart[i].Next(t.Context(), row, nil, sampler.NewSeeded(seed))
			if err != nil {
				t.Fatal(err)
			}
			together[i].Use(shared)
			got, err := together[i].Next(t.Context(), row, nil, sampler.NewSeeded(seed))
			together[i].Use(nil)
			if err != nil || got != want {
				t.Fatalf("stream %d: %+v (%v), want %+v", i, got, err, want)
			}
		}
	}
}
