//go:build goexperiment.simd

package vec

import (
	"simd/archsimd"
)

// hasSIMD reports whether the machine has the instructions of this file.
func hasSIMD() bool { return archsimd.X86.AVX512() }

// round32 rounds a float32 to a whole number, as round does.
const round32 = 1.5 * (1 << 23)

// expSum adds the weights of x, whose length is a multiple of lanes, to sum. A value outside of hi and lo counts as the nearer of them, and its
// run of 16 is noted in odd; the number of notes is returned.
func expSum(x []float32, p *skimArgs, sum *[8]float64, odd []oddRun) int {
	hi, lo := archsimd.BroadcastFloat32x16(p.hi), archsimd.BroadcastFloat32x16(p.lo)
	c, cc, magic := archsimd.BroadcastFloat32x16(p.c), archsimd.BroadcastFloat32x16(p.cc), archsimd.BroadcastFloat32x16(round32)
	a0, a1, a2 := archsimd.BroadcastFloat32x16(p.a[0]), archsimd.BroadcastFloat32x16(p.a[1]), archsimd.BroadcastFloat32x16(p.a[2])
	a3, a4, a5 := archsimd.BroadcastFloat32x16(p.a[3]), archsimd.BroadcastFloat32x16(p.a[4]), archsimd.BroadcastFloat32x16(p.a[5])
	t := archsimd.LoadFloat64x8(sum)
	n := 0
	for i := 0; i+32 <= len(x); i += 32 {
		run := (*[32]float32)(x[i:])
		v := archsimd.LoadFloat32x16((*[16]float32)(run[:16]))
		u := v.Min(hi).Max(lo)
		if m := v.NotEqual(u).ToBits(); m != 0 {
			odd[n] = oddRun{int32(i), m}
			n++
		}
		k := magic.Sub(u.MulAdd(c, magic))
		r := u.MulAdd(cc, u.MulAdd(c, k))
		w := r.MulAdd(a5, a4).MulAdd(r, a3).MulAdd(r, a2).MulAdd(r, a1).MulAdd(r, a0).Scale(k)

		v = archsimd.LoadFloat32x16((*[16]float32)(run[16:]))
		u = v.Min(hi).Max(lo)
		if m := v.NotEqual(u).ToBits(); m != 0 {
			odd[n] = oddRun{int32(i + 16), m}
			n++
		}
		k = magic.Sub(u.MulAdd(c, magic))
		r = u.MulAdd(cc, u.MulAdd(c, k))
		w = w.Add(r.MulAdd(a5, a4).MulAdd(r, a3).MulAdd(r, a2).MulAdd(r, a1).MulAdd(r, a0).Scale(k))
		t = t.Add(w.GetLo().ConvertToFloat64().Add(w.GetHi().ConvertToFloat64()))
	}
	t.Store(sum)
	archsimd.ClearAVXUpperBits()
	return n
}

// expMoments is expSum with the sums of w, w s and w s^2, where s is the distance from hi.
func expMoments(x []float32, p *skimArgs, sums *[3][8]float64, odd []oddRun) int {
	hi, lo := archsimd.BroadcastFloat32x16(p.hi), archsimd.BroadcastFloat32x16(p.lo)
	c, cc, magic := archsimd.BroadcastFloat32x16(p.c), archsimd.BroadcastFloat32x16(p.cc), archsimd.BroadcastFloat32x16(round32)
	a0, a1, a2 := archsimd.BroadcastFloat32x16(p.a[0]), archsimd.BroadcastFloat32x16(p.a[1]), archsimd.BroadcastFloat32x16(p.a[2])
	a3, a4, a5 := archsimd.BroadcastFloat32x16(p.a[3]), archsimd.BroadcastFloat32x16(p.a[4]), archsimd.BroadcastFloat32x16(p.a[5])
	n := 0
	for i := 0; i+lanes <= len(x); i += lanes {
		var w0, w1, w2 archsimd.Float32x16
		for j := 0; j < lanes; j += 16 {
			v := archsimd.LoadFloat32x16((*[16]float32)(x[i+j:]))
			u := v.Min(hi).Max(lo)
			if m := v.NotEqual(u).ToBits(); m != 0 {
				odd[n] = oddRun{int32(i + j), m}
				n++
			}
			k := magic.Sub(u.MulAdd(c, magic))
			r := u.MulAdd(cc, u.MulAdd(c, k))
			w := r.MulAdd(a5, a4).MulAdd(r, a3).MulAdd(r, a2).MulAdd(r, a1).MulAdd(r, a0).Scale(k)
			s := u.Sub(hi)
			w0 = w0.Add(w)
			w1 = w.MulAdd(s, w1)
			w2 = w.Mul(s).MulAdd(s, w2)
		}
		addTo(&sums[0], w0)
		addTo(&sums[1], w1)
		addTo(&sums[2], w2)
	}
	archsimd.ClearAVXUpperBits()
	return n
}

// addTo adds w to the sums.
func addTo(sum *[8]float64, w archsimd.Float32x16) {
	archsimd.LoadFloat64x8(sum).Add(w.GetLo().ConvertToFloat64().Add(w.GetHi().ConvertToFloat64())).Store(sum)
}

// runsWithin notes the runs of 16 of x, whose length is a multiple of 16, with a value whose bits are from lo up to, but not, lo+width.
func runsWithin(x []float32, lo, width uint32, odd []oddRun) int {
	from, end := archsimd.BroadcastUint32x16(lo), archsimd.BroadcastUint32x16(width)
	n := 0
	for i := 0; i+16 <= len(x); i += 16 {
		d := archsimd.LoadFloat32x16((*[16]float32)(x[i:])).AsUint32x16().Sub(from)
		if m := d.Less(end).ToBits(); m != 0 {
			odd[n] = oddRun{int32(i), m}
			n++
		}
	}
	archsimd.ClearAVXUpperBits()
	return n
}

// runAbove returns the first place, a multiple of 16 from i, of a run of 16 with a value over low; len(x) or up to 15 less where there is none.
func runAbove(x []float32, i int, low float32) int {
	least := archsimd.BroadcastFloat32x16(low)
	for i+16 <= len(x) && archsimd.LoadFloat32x16((*[16]float32)(x[i:])).Greater(least).ToBits() == 0 {
		i += 16
	}
	archsimd.ClearAVXUpperBits()
	return i
}
