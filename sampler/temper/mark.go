package temper

// Marker is a strategy whose state can go back by a token: a server may show a token's row again, changed, after the token was chosen. A
// strategy without a state has no need of it.
type Marker interface {
	// Mark notes the state, between two tokens.
	Mark()
	// Rewind goes back to the latest Mark. No more than one token may have been chosen since.
	Rewind()
}

// Mark implements [Marker].
func (s *hvhDrift) Mark() { s.marked = s.means }

// Rewind implements [Marker].
func (s *hvhDrift) Rewind() { s.means = s.marked }

// ringMark is what Chosen changes of a ring.
type ringMark struct {
	n, next int
	oldest  int32 // the token that the next one takes the place of
}

// Mark implements [Marker].
func (s *ring) Mark() {
	s.marked = ringMark{n: len(s.ids), next: s.next}
	if len(s.ids) == s.size {
		s.marked.oldest = s.ids[s.next]
	}
}

// Rewind implements [Marker].
func (s *ring) Rewind() {
	s.ids, s.next = s.ids[:s.marked.n], s.marked.next
	if len(s.ids) == s.size {
		s.ids[s.next] = s.marked.oldest
	}
}

// Mark implements [Marker].
func (g *gate) Mark() {
	g.marked = g.boost
	if m, ok := g.inner.(Marker); ok {
		m.Mark()
	}
}

// Rewind implements [Marker].
func (g *gate) Rewind() {
	g.boost = g.marked
	if m, ok := g.inner.(Marker); ok {
		m.Rewind()
	}
}
