package sampler

import "qr-gateway/sampler/internal/vec"

// fromSketch decides where no top-k and no min-p is set: from the row's sketch, and the few tokens around each limit. It reports false where
// the sketch can't tell, or where a limit is so near a token's edge that the sketch's error may decide.
func (s *Sampler) fromSketch(c Cut, u float64) (Draw, bool) {
	if !s.sketched() || !s.soft.Set(s.sketch, c.t()) {
		return Draw{}, false
	}
	total, n, _ := s.soft.Total()
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
	return d, ok && d.Prob*s.doubt()/total < 1e-10
}

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
	if s.read == unread {
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
	if s.sketched() {
		if m, ok := s.soft.Moments(s.sketch); ok {
			return m
		}
	}
	return vec.MomentsOf(s.row, s.ban.IDs())
}
