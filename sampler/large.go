package sampler

import "qr-gateway/sampler/internal/vec"

// fromHist decides among many tokens. The row's distribution goes into a histogram by descending probability, once for all picks by the same
// limits, and only the bucket that u falls into is gathered and sorted.
func (s *Sampler) fromHist(row []float32, ban *Mask, c Cut, k int, largest float32, u float64) (Draw, error) {
	if !s.counted || s.limits != c {
		s.count(row, ban, c, k, largest)
		s.counted, s.limits = true, c
	}
	total, n := s.hist.Total()
	at, before, rank := s.hist.ByMass(u * total)
	keys := s.bucket(row, ban, at)
	i := s.walk(keys, u*total-before)
	return Draw{Token: keys[i].ID(), Rank: rank + i, Prob: s.hist.Prob(keys[i]) / total, Candidates: n, U: u}, nil
}

// count makes the histogram and cuts it off where top-k and top-p say; each limit is found in it the way that u is.
func (s *Sampler) count(row []float32, ban *Mask, c Cut, k int, largest float32) {
	s.hist.Reset(largest, c.Temperature, c.floor())
	vec.Segments(row, ban.IDs(), func(_ int32, seg []float32) { s.hist.Add(seg) })
	s.hist.Settle()
	total, n := s.hist.Total()
	if k < n {
		at, before := s.hist.ByCount(k)
		s.hist.Cut(at, s.bucket(row, ban, at), k-before)
		total, _ = s.hist.Total()
	}
	if c.TopP < 1 {
		at, before, _ := s.hist.ByMass(c.TopP * total)
		keys := s.bucket(row, ban, at)
		s.hist.Cut(at, keys, 1+s.walk(keys, c.TopP*total-before))
	}
}

// bucket returns the sorted keys of one bucket that no limit has cut off.
func (s *Sampler) bucket(row []float32, ban *Mask, at int) []vec.Key {
	s.keys = s.keys[:0]
	vec.Segments(row, ban.IDs(), func(base int32, seg []float32) {
		s.keys = s.hist.Gather(s.keys, at, base, seg)
	})
	return s.hist.Sorted(at, s.keys)
}

// walk returns the index of the first key at which the running mass reaches target, else the last.
func (s *Sampler) walk(keys []vec.Key, target float64) int {
	sum := 0.0
	for i, k := range keys {
		if sum += s.hist.Prob(k); sum >= target {
			return i
		}
	}
	return len(keys) - 1
}
