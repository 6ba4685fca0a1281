package vec

import "math"

// Top keeps the m largest keys it has seen. The zero value is of size 0; Reset makes it usable.
type Top struct {
	heap []Key // the smallest at the root once it is full
	m    int
	simd bool
	low  float32 // what a value must exceed to enter
}

// Reset empties t and sets its size, which is at least 1. It allocates only when m grows.
func (t *Top) Reset(m int) {
	if cap(t.heap) < m {
		t.heap = make([]Key, 0, m)
	}
	t.simd = hasSIMD()
	t.heap, t.m, t.low = t.heap[:0], m, float32(math.Inf(-1))
}

// Scan takes in seg, whose first entry has the id base. Segments come in ascending order of id.
func (t *Top) Scan(base int32, seg []float32) {
	i := 0
	for t.simd {
		if i = runAbove(seg, i, t.low); i+16 > len(seg) {
			break
		}
		t.enter(base+int32(i), seg[i:i+16])
		i += 16
	}
	for ; len(seg)-i >= 8; i += 8 {
		y, low := seg[i:i+8:i+8], t.low
		if y[0] > low || y[1] > low || y[2] > low || y[3] > low || y[4] > low || y[5] > low || y[6] > low || y[7] > low {
			t.enter(base+int32(i), y)
		}
	}
	t.enter(base+int32(i), seg[i:])
}

func (t *Top) enter(base int32, seg []float32) {
	for i, v := range seg {
		if v > t.low && v <= math.MaxFloat32 {
			t.push(NewKey(v, base+int32(i)))
		}
	}
}

func (t *Top) push(k Key) {
	if len(t.heap) < t.m {
		t.heap = append(t.heap, k)
		if len(t.heap) < t.m {
			return
		}
		for i := t.m/2 - 1; i >= 0; i-- {
			sink(t.heap, i)
		}
	} else {
		t.heap[0] = k
		sink(t.heap, 0)
	}
	t.low = t.heap[0].Value()
}

// sink restores the heap below i.
func sink(h []Key, i int) {
	k := h[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if k <= h[c] {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = k
}

// Keys returns what was kept, in no order, until the next Reset.
func (t *Top) Keys() []Key { return t.heap }
