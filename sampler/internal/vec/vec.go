// Package vec holds the loops over a whole vocabulary: largest value, top m, gathering above a threshold, and a histogram of probability that
// finds one place of a sorted distribution without sorting it. Everything is scalar Go and allocates nothing once made. A value that is
// not finite counts as absent. Rows come in segments, so that banned ids are stepped over instead of copied around.
//
// The types own their scratch memory and belong to one goroutine.
package vec

import "math"

// Key orders tokens: a larger key is a larger value, or the same value and a lower id.
type Key uint64

// NewKey packs a finite value and an id.
func NewKey(v float32, id int32) Key {
	b := math.Float32bits(v + 0) // -0 becomes 0
	if b>>31 != 0 {
		b = ^b
	} else {
		b |= 1 << 31
	}
	return Key(uint64(b)<<32 | uint64(^uint32(id)))
}

// ID unpacks the id.
func (k Key) ID() int32 { return int32(^uint32(k)) }

// Value unpacks the value.
func (k Key) Value() float32 {
	b := uint32(k >> 32)
	if b>>31 != 0 {
		return math.Float32frombits(b &^ (1 << 31))
	}
	return math.Float32frombits(^b)
}

// Segments calls visit for each run of row that holds none of the banned ids, which ascend. base is the id of the run's first entry.
func Segments(row []float32, banned []int32, visit func(base int32, seg []float32)) {
	from := 0
	for _, id := range banned {
		if int(id) < from {
			continue
		}
		if int(id) >= len(row) {
			break
		}
		if int(id) > from {
			visit(int32(from), row[from:id])
		}
		from = int(id) + 1
	}
	if from < len(row) {
		visit(int32(from), row[from:])
	}
}

// Max returns the largest value of x that is not NaN, and -Inf for none.
func Max(x []float32) float32 {
	inf := float32(math.Inf(-1))
	a, b, c, d := inf, inf, inf, inf
	for len(x) >= 4 {
		y := x[:4:4]
		if y[0] > a {
			a = y[0]
		}
		if y[1] > b {
			b = y[1]
		}
		if y[2] > c {
			c = y[2]
		}
		if y[3] > d {
			d = y[3]
		}
		x = x[4:]
	}
	for _, v := range x {
		if v > a {
			a = v
		}
	}
	return larger(larger(a, b), larger(c, d))
}

func larger(a, b float32) float32 {
	if a > b {
		return a
	}
	return b
}

// MaxFinite returns the largest finite value of x, and -Inf for none.
func MaxFinite(x []float32) float32 {
	m := Max(x)
	if m <= math.MaxFloat32 {
		return m
	}
	m = float32(math.Inf(-1))
	for _, v := range x {
		if v > m && v <= math.MaxFloat32 {
			m = v
		}
	}
	return m
}

// Broken reports whether x has a NaN or +Inf: a model that works gives neither.
func Broken(x []float32) bool {
	i := 0
	if hasSIMD() {
		i = firstBroken(x)
		if i+16 <= len(x) {
			return true
		}
	}
	for ; i+8 <= len(x); i += 8 {
		y := (*[8]float32)(x[i:])
		// 0 unless one of them is not finite, or the sum overflows.
		if sum := ((y[0] + y[1]) + (y[2] + y[3])) + ((y[4] + y[5]) + (y[6] + y[7])); sum*0 != 0 && anyBroken(y[:]) {
			return true
		}
	}
	return anyBroken(x[i:])
}

func anyBroken(x []float32) bool {
	for _, v := range x {
		if !(v <= most) {
			return true
		}
	}
	return false
}

const most = math.MaxFloat32

// Index returns the first place of v in x, and -1 for none.
func Index(x []float32, v float32) int32 {
	for i := range x {
		if x[i] == v {
			return int32(i)
		}
	}
	return -1
}

// Gather appends the keys of the finite values of seg that are at least least. base is the id of seg's first entry.
func Gather(dst []Key, base int32, seg []float32, least float32) []Key {
	least = larger(least, -math.MaxFloat32)
	for i, v := range seg {
		if v >= least && v <= math.MaxFloat32 {
			dst = append(dst, NewKey(v, base+int32(i)))
		}
	}
	return dst
}
