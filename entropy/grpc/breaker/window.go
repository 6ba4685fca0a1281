package breaker

import (
	"slices"
	"time"
)

// window is the last attempts, by age and by size.
type window struct {
	ring   []time.Duration
	sorted []time.Duration
	n      int
	next   int // in the ring
}

func newWindow(size int) window {
	return window{ring: make([]time.Duration, size), sorted: make([]time.Duration, 0, size)}
}

// add puts one in and, when full, takes the oldest out.
func (w *window) add(d time.Duration) {
	if w.n == len(w.ring) {
		i, _ := slices.BinarySearch(w.sorted, w.ring[w.next])
		w.sorted = slices.Delete(w.sorted, i, i+1)
	} else {
		w.n++
	}
	w.ring[w.next] = d
	w.next = (w.next + 1) % len(w.ring)
	i, _ := slices.BinarySearch(w.sorted, d)
	w.sorted = slices.Insert(w.sorted, i, d)
}
