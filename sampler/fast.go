package sampler

import "qr-gateway/sampler/internal/vec"

// fromSums decides where no top-k and no min-p is set: from the row's head and the sum of its tail, or from its sketch, and the few tokens around
// each limit. It reports false where neither can tell, or where a limit is so near a token's edge that an error of theirs may decide.
func (s *Sampler) fromSums(c Cut, u float64) (Draw, bool) {
	// Sums for a higher temperature may do: where the tail is next to nothing, it need not be told.
	if s.read == skimmed && s.soft.SetSkim(s.sketch, c.t()) {
		if d, sure := s.decide(c, u); sure {
			return d, true
		}
	}
	if s.skim(c.t(), false) && s.soft.SetSkim(s.sketch, c.t()) {
		if d, sure := s.decide(c, u); sure {
			return d, true
		}
	}
	if !s.sketched() || !s.soft.Set(s.sketch, c.t()) {
		return Draw{}, false
	}
	return s.decide(c, u)
}

// skim takes in the row's head and the sum of its tail, unless there is a sketch.
func (s *Sampler) skim(t float64, full bool) bool {
	if s.read > skimmed || !s.sketch.Skim(s.row, s.ban.IDs(), t, full, s.read == skimmed) {
		return false
	}
	s.read = skimmed
	return true
}

// decide finds the token in the distribution.
func (s *Sampler) decide(c Cut, u float64) (Draw, bool) {
	total, n, err := s.soft.Total()
	d := Draw{U: u, Candidates: n, AfterTopK: n, AfterMinP: n}
	if c.TopP < 1 {
		at, ok := s.place(c.TopP*total, n)
		if !ok {
			return Draw{}, false
		}
		total, d.Candidates = at.Through, at.Rank+1
	}
	at, ok := s.place(u*total, d.Candidates)
	d.Token, d.Rank, d.Prob = at.Key.ID(), at.Rank, (at.Through-at.Before)/total
	return d, ok && d.Prob*err < worstProb*total
}

// worstProb is the most that a probability may be wrong by. It is far less but for rows made to find the worst.
const worstProb = 5e-9

// doubt is what a mass and a limit, which is a share of another, may be wrong by.
func (s *Sampler) doubt() float64 {
	_, _, err := s.soft.Total()
	return 2 * err
}

// place finds the token, one of n, at which the running mass reaches target. It reports whether that is beyond doubt.
func (s *Sampler) place(target float64, n int) (at vec.Place, sure bool) {
	at, s.keys = s.soft.Find(target, s.row, s.ban.IDs(), s.keys)
	doubt := s.doubt()
	first, last := at.Rank == 0, at.Rank == n-1
	return at, (first || at.Before+doubt < target) && (last || target+doubt <= at.Through)
}

// sketched makes the row's sketch unless that has been done.
func (s *Sampler) sketched() bool {
	if s.read <= skimmed {
		s.read = unfit
		if s.sketch.Read(s.row, s.ban.IDs()) {
			s.read = fit
		}
	}
	return s.read == fit
}

// Moments are the entropy and its kin of the row of the last Load.
type Moments = vec.Moments

// Moments tells the row of the last Load, bans taken out, at temperature 1. A row with no finite logit has none.
func (s *Sampler) Moments() Moments {
	if s.skim(1, true) {
		if m, ok := s.soft.SkimMoments(s.sketch); ok {
			return m
		}
	}
	if s.sketched() {
		if m, ok := s.soft.Moments(s.sketch); ok {
			return m
		}
	}
	return vec.MomentsOf(s.row, s.ban.IDs())
}
