package memory

import (
	"cmp"
	"slices"
	"sort"
)

// start is the tag that a lane will have when its job i is served.
func (a *lane) start(i int) float64 { return a.tag + a.jobs[i].mark - a.jobs[0].mark }

// last is the position of the newest job of a key: how many leave before it, plus 1.
func (l *line) last(key string) int {
	own := l.lanes[key]
	return l.before(own, key, len(own.jobs)-1) + 1
}

// before is how many jobs leave before job i of a lane.
func (l *line) before(own *lane, key string, i int) int {
	n := i
	for _, a := range l.turns {
		if a.tag > own.start(i) {
			break
		}
		if a.key != key {
			n += before(a, own, i)
		}
	}
	return n
}

// before is how many jobs of a lane are served before job i of another.
func before(a, own *lane, i int) int {
	start := own.start(i)
	n := sort.Search(len(a.jobs), func(j int) bool { return a.start(j) >= start })
	if n < len(a.jobs) && a.start(n) == start && first(a, n, own, i) {
		n++
	}
	return n
}

// first says which of two jobs with the same start is served first: that whose lane got its turn first, which it did when the job
// before was served. Far from the head it guesses.
func first(a *lane, i int, b *lane, j int) bool {
	for range far {
		if i == 0 || j == 0 {
			break
		}
		i, j = i-1, j-1
		if a.start(i) != b.start(j) {
			return a.start(i) < b.start(j)
		}
	}
	if (i == 0) == (j == 0) {
		return a.turn < b.turn
	}
	return i == 0
}

// far is how many jobs before two are looked at to tell which of them is first.
const far = 32

// served is how far a lane has been served in each.
type served struct {
	*lane
	next int
	tag  float64
	turn int64
}

// each calls f with every waiting job in the order they will be served, counted from 1.
func (l *line) each(f func(position int, r *record)) {
	order := make([]served, len(l.turns))
	for i, a := range l.turns {
		order[i] = served{lane: a, tag: a.tag, turn: a.turn}
	}
	turn := l.turn
	for position := 1; len(order) > 0; position++ {
		s := order[0]
		order = order[1:]
		f(position, s.jobs[s.next])
		if s.next++; s.next == len(s.jobs) {
			continue
		}
		turn++
		s.tag, s.turn = s.start(s.next), turn
		at, _ := slices.BinarySearchFunc(order, s, func(a, b served) int {
			return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(a.turn, b.turn))
		})
		order = slices.Insert(order, at, s)
	}
}
