package sampler

// Sampler is the plain decoder: one row, one number, one token. It owns its scratch memory and belongs to one goroutine.
type Sampler struct {
	nVocab int
}

// Draw is the token chosen and what was known about it.
type Draw struct {
	Token      int32
	Rank       int     // 0 is the most probable candidate
	Prob       float64 // after temperature and truncation, over the candidates
	Candidates int     // tokens that could have been chosen
	U          float64 // the number that decided; meaningless where none was needed
}

// New returns a sampler for rows of nVocab logits.
func New(nVocab int) *Sampler { return &Sampler{nVocab: nVocab} }

// NeedsU reports whether [Sampler.Choose] reads its u: a greedy choice does not.
func NeedsU(p *Params) bool { return p.Temperature != 0 && p.TopK != 1 && p.TopP != 0 }

// Choose picks a token from row; see the package comment for the order of the filters.
func (s *Sampler) Choose(row []float32, ban *Mask, p *Params, u float64) (Draw, error) {
	return Draw{}, errNotBuilt
}
