package text

import "slices"

// Stops looks for stop strings in a stream of bytes. The stop string that is complete first wins; of those that are
// complete at the same byte, the longest. Bytes that may still become a stop string are held back, never more than
// the longest stop string has. Matching is on bytes, so that a stop string may be cut anywhere by the pieces.
type Stops struct {
	matchers []matcher
	include  bool
	held     []byte
	done     bool
}

// NewStops makes a matcher for the given strings; empty ones and repeats are ignored. With include, the stop string that
// was found is part of the text.
func NewStops(stops []string, include bool) *Stops {
	s := &Stops{include: include}
	seen := map[string]bool{"": true}
	for _, stop := range stops {
		if !seen[stop] {
			seen[stop] = true
			s.matchers = append(s.matchers, newMatcher(stop))
		}
	}
	return s
}

// Append adds to dst the bytes that are certain to be text and reports whether a stop string was found. After that,
// everything is dropped.
func (s *Stops) Append(dst, piece []byte) ([]byte, bool) {
	if s.done {
		return dst, true
	}
	if len(s.matchers) == 0 {
		return append(dst, piece...), false
	}
	for i, b := range piece {
		if found := s.advance(b); found > 0 {
			return s.finish(dst, piece[:i+1], found), true
		}
	}
	s.held = append(s.held, piece...)
	certain := len(s.held) - s.live()
	dst = append(dst, s.held[:certain]...)
	s.held = slices.Delete(s.held, 0, certain)
	return dst, false
}

// Flush adds what was held back and leaves s as new.
func (s *Stops) Flush(dst []byte) []byte {
	dst = append(dst, s.held...)
	s.held, s.done = s.held[:0], false
	for i := range s.matchers {
		s.matchers[i].state = 0
	}
	return dst
}

// advance feeds one byte to every matcher and returns the length of the longest stop string that it completes, or 0.
func (s *Stops) advance(b byte) int {
	found := 0
	for i := range s.matchers {
		if m := &s.matchers[i]; m.next(b) {
			found = max(found, len(m.pattern))
		}
	}
	return found
}

// live is the number of bytes at the end of the stream that may still become a stop string.
func (s *Stops) live() int {
	n := 0
	for i := range s.matchers {
		n = max(n, s.matchers[i].state)
	}
	return n
}

// finish ends the text at the stop string of the given length, whose last byte is the last of piece.
func (s *Stops) finish(dst, piece []byte, length int) []byte {
	s.held = append(s.held, piece...)
	end := len(s.held)
	if !s.include {
		end -= length
	}
	dst = append(dst, s.held[:end]...)
	s.held, s.done = s.held[:0], true
	return dst
}

// matcher is Knuth, Morris and Pratt's: state is the length of the longest beginning of pattern that the stream ends with.
type matcher struct {
	pattern string
	fall    []int // fall[i]: the state to go on from when the byte after i matched ones differs
	state   int
}

func newMatcher(pattern string) matcher {
	m := matcher{pattern: pattern, fall: make([]int, len(pattern)+1)}
	for i, k := 1, 0; i < len(pattern); i++ {
		for k > 0 && pattern[i] != pattern[k] {
			k = m.fall[k]
		}
		if pattern[i] == pattern[k] {
			k++
		}
		m.fall[i+1] = k
	}
	return m
}

// next feeds one byte and reports whether it completes the pattern.
func (m *matcher) next(b byte) bool {
	for m.state > 0 && (m.state == len(m.pattern) || m.pattern[m.state] != b) {
		m.state = m.fall[m.state]
	}
	if m.pattern[m.state] == b {
		m.state++
	}
	return m.state == len(m.pattern)
}
