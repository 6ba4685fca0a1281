package sampler

import (
	"fmt"
	"math"

	"qr-gateway/sampler/internal/vec"
)

// Tokens up to which a truncated row is sorted as a whole. Beyond it only the part that u falls into is.
const smallSet = 1024

// Sampler is the plain decoder: one row, one number, one token. It owns its scratch memory and belongs to one goroutine.
type Sampler struct {
	nVocab int
	top    vec.Top
	keys   []vec.Key // scratch, grown once
	prob   []float64 // scratch, beside keys
	hist   *vec.Hist

	row     []float32 // of the last Load, with
	ban     *Mask
	read    int // whether sketch is the row's
	sketch  *vec.Sketch
	soft    *vec.Softmax
	counted bool // hist is the row's, cut off by
	limits  Cut
}

// Whether a row has a sketch.
const (
	unread  = iota
	skimmed // its head only
	unfit   // it can't have one
	fit
)

// Draw is the token chosen and what was known about it.
type Draw struct {
	Token      int32
	Rank       int     // 0 is the most probable candidate
	Prob       float64 // after temperature and truncation, over the candidates
	Candidates int     // tokens that could have been chosen
	U          float64 // the number that decided; 0 where none was needed
	AfterTopK  int     // tokens that top-k left, and
	AfterMinP  int     // tokens that min-p left of those; 0 where they were not counted
	Covered    float64 // share of the row, at temperature 1, in the [Head] that decided; 0 where the whole row did
	ProbErr    float64 // what Prob may be off by, where a head decided
}

// New returns a sampler for rows of nVocab logits.
func New(nVocab int) *Sampler { return newSampler(nVocab, false) }

// newSampler returns a sampler that, where plain, uses no vector instructions.
func newSampler(nVocab int, plain bool) *Sampler {
	return &Sampler{
		nVocab: nVocab, hist: vec.NewHist(), sketch: vec.NewSketch(plain), soft: vec.NewSoftmax(),
		keys: make([]vec.Key, 0, nVocab), prob: make([]float64, 0, smallSet),
	}
}

// Choose picks a token of row, which has one logit per token and is not changed. Steps, in this order: banned ids are taken out, logits
// divided by the temperature, top-k, softmax, min-p against the largest probability, top-p over what is left. With TruncateFirst, the
// temperature comes between min-p and top-p. The survivors stand by descending probability, the lower id first where two are equal, and
// the first whose running share reaches u is chosen: u near 0 is the most probable token, u near 1 the least. A logit that is not finite counts
// as absent, and so does a probability under e^-700 of the largest; where none is left the error is [ErrNoCandidates]. u lies in (0,1) and
// is not read where [Cut.NeedsU] says so.
func (s *Sampler) Choose(row []float32, ban *Mask, c Cut, u float64) (Draw, error) {
	if err := s.Load(row, ban); err != nil {
		return Draw{}, err
	}
	return s.Pick(c, u)
}

// Load takes a row, which has one logit per token, and the tokens that are not to be chosen from it. Neither may change before the last
// [Sampler.Pick] or [Sampler.Moments] of the row.
func (s *Sampler) Load(row []float32, ban *Mask) error {
	if len(row) != s.nVocab {
		return fmt.Errorf("choose token: row has %d logits, the vocabulary %d", len(row), s.nVocab)
	}
	s.row, s.ban, s.read, s.counted = row, ban, unread, false
	return nil
}

// Pick is [Sampler.Choose] for the row of the last Load. It reads the row anew only as far as Moments and earlier picks have not.
func (s *Sampler) Pick(c Cut, u float64) (Draw, error) {
	if !c.NeedsU() {
		return s.greedy(s.row, s.ban)
	}
	if !(u > 0 && u < 1) {
		return Draw{}, fmt.Errorf("choose token: u is %v; it must lie between 0 and 1", u)
	}
	k := s.topK(c)
	if k <= smallSet {
		s.takeTop(s.row, s.ban, k)
		return s.fromSorted(c, u)
	}
	if k >= s.nVocab && c.floor() <= 0 {
		if d, sure := s.fromSums(c, u); sure {
			return d, nil
		}
	}
	return s.pickExactly(c, k, u)
}

// pickExactly decides by the row itself. k is over smallSet.
func (s *Sampler) pickExactly(c Cut, k int, u float64) (Draw, error) {
	largest := s.largest(s.row, s.ban)
	if math.IsInf(float64(largest), -1) {
		return Draw{}, ErrNoCandidates
	}
	if c.floor() > 0 && s.takeAbove(s.row, s.ban, c, largest) {
		return s.fromSorted(c, u)
	}
	return s.fromHist(s.row, s.ban, c, k, largest, u)
}

// topK is the number of tokens that top-k lets through.
func (s *Sampler) topK(c Cut) int {
	if c.TopK <= 0 {
		return s.nVocab
	}
	return min(c.TopK, s.nVocab)
}

// greedy takes the largest logit and the lowest id that has it.
func (s *Sampler) greedy(row []float32, ban *Mask) (Draw, error) {
	best, at := float32(math.Inf(-1)), int32(-1)
	vec.Segments(row, ban.IDs(), func(base int32, seg []float32) {
		if m := vec.MaxFinite(seg); m > best {
			best, at = m, base+vec.Index(seg, m)
		}
	})
	if at < 0 {
		return Draw{}, ErrNoCandidates
	}
	return Draw{Token: at, Prob: 1, Candidates: 1}, nil
}

func (s *Sampler) largest(row []float32, ban *Mask) float32 {
	best := float32(math.Inf(-1))
	vec.Segments(row, ban.IDs(), func(_ int32, seg []float32) {
		best = max(best, vec.MaxFinite(seg))
	})
	return best
}

// takeTop leaves the k largest in keys, sorted.
func (s *Sampler) takeTop(row []float32, ban *Mask, k int) {
	s.top.Reset(k)
	vec.Segments(row, ban.IDs(), s.top.Scan)
	s.keys = append(s.keys[:0], s.top.Keys()...)
	vec.Sort(s.keys)
}

// takeAbove leaves the tokens that min-p may let through in keys, sorted, and reports whether they are few.
func (s *Sampler) takeAbove(row []float32, ban *Mask, c Cut, largest float32) bool {
	floor := float64(largest) + math.Log(c.floor())*c.t()
	floor -= 1e-6 * (1 + math.Abs(floor))
	s.keys = s.keys[:0]
	vec.Segments(row, ban.IDs(), func(base int32, seg []float32) {
		for len(seg) > 0 && len(s.keys) <= smallSet {
			n := min(len(seg), 4*smallSet)
			s.keys = vec.Gather(s.keys, base, seg[:n], float32(floor))
			base, seg = base+int32(n), seg[n:]
		}
	})
	if len(s.keys) > smallSet {
		return false
	}
	vec.Sort(s.keys)
	if k := s.topK(c); len(s.keys) > k {
		s.keys = s.keys[:k]
	}
	return true
}

// fromSorted decides among the few tokens of keys.
func (s *Sampler) fromSorted(c Cut, u float64) (Draw, error) {
	if len(s.keys) == 0 {
		return Draw{}, ErrNoCandidates
	}
	total := s.weigh(c)
	n, total := cutTopP(s.prob, total, c.TopP)
	at, target, sum := 0, u*total, s.prob[0]
	for sum < target && at < n-1 {
		at++
		sum += s.prob[at]
	}
	return Draw{Token: s.keys[at].ID(), Rank: at, Prob: s.prob[at] / total, Candidates: n, U: u}, nil
}

// weigh fills prob with the unnormalised probabilities of keys that pass min-p, and returns their sum.
func (s *Sampler) weigh(c Cut) (total float64) {
	s.prob = s.prob[:0]
	largest, floor := float64(s.keys[0].Value()), c.floor()
	for _, k := range s.keys {
		x := (float64(k.Value()) - largest) / c.t()
		q := math.Exp(x)
		if q < floor || x < vec.Floor {
			break
		}
		s.prob = append(s.prob, q)
		total += q
	}
	return total
}

// cutTopP returns how many of prob, which descends and sums to total, top-p keeps, and their sum.
func cutTopP(prob []float64, total, topP float64) (n int, kept float64) {
	if topP >= 1 {
		return len(prob), total
	}
	for n < len(prob) {
		kept += prob[n]
		n++
		if kept >= topP*total {
			break
		}
	}
	return n, kept
}
