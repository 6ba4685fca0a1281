//go:build goexperiment.simd

package vec

import (
	"simd/archsimd"
)

// hasSIMD reports whether the machine has the instructions of this file.
func hasSIMD() bool { return archsimd.X86.AVX512() }

// round32 rounds a float32 to a whole number, as round does.
const round32 = 1.5 * (1 << 23)

// The loops below keep everything in registers, of which the compiler uses 15: what it spills goes to a stack that may lie across the lines of the
// cache, which takes several times as long.

// weigh puts the weights of x, whose length is a multiple of lanes, into w. A value outside of hi and lo counts as the nearer of them, and its run
// of 16 is noted in odd, with i0 added to its place; the number of notes is returned.
func weigh(x, w []float32, p *skimArgs, i0 int, odd []oddRun) int {
	hi, lo := archsimd.BroadcastFloat32x16(p.hi), archsimd.BroadcastFloat32x16(p.lo)
	c, cc, magic := archsimd.BroadcastFloat32x16(p.c), archsimd.BroadcastFloat32x16(p.cc), archsimd.BroadcastFloat32x16(round32)
	a0, a1, a2 := archsimd.BroadcastFloat32x16(p.a[0]), archsimd.BroadcastFloat32x16(p.a[1]), archsimd.BroadcastFloat32x16(p.a[2])
	a3, a4, a5 := archsimd.BroadcastFloat32x16(p.a[3]), archsimd.BroadcastFloat32x16(p.a[4]), archsimd.BroadcastFloat32x16(p.a[5])
	n := 0
	for i := 0; i+32 <= len(x) && i+32 <= len(w); i += 32 {
		from, to := (*[32]float32)(x[i:]), (*[32]float32)(w[i:])
		v := archsimd.LoadFloat32x16((*[16]float32)(from[:16]))
		u := v.Min(hi).Max(lo)
		if m := v.NotEqual(u).ToBits(); m != 0 {
			odd[n] = oddRun{int32(i0 + i), m}
			n++
		}
		k := magic.Sub(u.MulAdd(c, magic))
		r := u.MulAdd(cc, u.MulAdd(c, k))
		r.MulAdd(a5, a4).MulAdd(r, a3).MulAdd(r, a2).MulAdd(r, a1).MulAdd(r, a0).Scale(k).Store((*[16]float32)(to[:16]))

		v = archsimd.LoadFloat32x16((*[16]float32)(from[16:]))
		u = v.Min(hi).Max(lo)
		if m := v.NotEqual(u).ToBits(); m != 0 {
			odd[n] = oddRun{int32(i0 + i + 16), m}
			n++
		}
		k = magic.Sub(u.MulAdd(c, magic))
		r = u.MulAdd(cc, u.MulAdd(c, k))
		r.MulAdd(a5, a4).MulAdd(r, a3).MulAdd(r, a2).MulAdd(r, a1).MulAdd(r, a0).Scale(k).Store((*[16]float32)(to[16:]))
	}
	archsimd.ClearAVXUpperBits()
	return n
}

// addWeights adds w, whose length is a multiple of lanes, to sum.
func addWeights(w []float32, sum *[8]float64) {
	t := archsimd.LoadFloat64x8(sum)
	for i := 0; i+lanes <= len(w); i += lanes {
		y := (*[lanes]float32)(w[i:])
		a := archsimd.LoadFloat32x16((*[16]float32)(y[:16])).Add(archsimd.LoadFloat32x16((*[16]float32)(y[16:32])))
		b := archsimd.LoadFloat32x16((*[16]float32)(y[32:48])).Add(archsimd.LoadFloat32x16((*[16]float32)(y[48:])))
		t = t.Add(wide(a.Add(b)))
	}
	t.Store(sum)
	archsimd.ClearAVXUpperBits()
}

// addMoments adds w, w s and w s^2 to the sums, where s is the distance of x, clamped to hi and lo, from hi.
func addMoments(x, w []float32, p *skimArgs, sums *[3][8]float64) {
	hi, lo := archsimd.BroadcastFloat32x16(p.hi), archsimd.BroadcastFloat32x16(p.lo)
	t0, t1, t2 := archsimd.LoadFloat64x8(&sums[0]), archsimd.LoadFloat64x8(&sums[1]), archsimd.LoadFloat64x8(&sums[2])
	for i := 0; i+lanes <= len(x) && i+lanes <= len(w); i += lanes {
		values, weights := (*[lanes]float32)(x[i:]), (*[lanes]float32)(w[i:])
		v, s := archsimd.LoadFloat32x16((*[16]float32)(weights[0:16])), archsimd.LoadFloat32x16((*[16]float32)(values[0:16])).Min(hi).Max(lo).Sub(hi)
		vs := v.Mul(s)
		s0, s1, s2 := v, vs, vs.Mul(s)
		v, s = archsimd.LoadFloat32x16((*[16]float32)(weights[16:32])), archsimd.LoadFloat32x16((*[16]float32)(values[16:32])).Min(hi).Max(lo).Sub(hi)
		vs = v.Mul(s)
		s0, s1, s2 = s0.Add(v), s1.Add(vs), vs.MulAdd(s, s2)
		v, s = archsimd.LoadFloat32x16((*[16]float32)(weights[32:48])), archsimd.LoadFloat32x16((*[16]float32)(values[32:48])).Min(hi).Max(lo).Sub(hi)
		vs = v.Mul(s)
		s0, s1, s2 = s0.Add(v), s1.Add(vs), vs.MulAdd(s, s2)
		v, s = archsimd.LoadFloat32x16((*[16]float32)(weights[48:64])), archsimd.LoadFloat32x16((*[16]float32)(values[48:64])).Min(hi).Max(lo).Sub(hi)
		vs = v.Mul(s)
		s0, s1, s2 = s0.Add(v), s1.Add(vs), vs.MulAdd(s, s2)
		t0, t1, t2 = t0.Add(wide(s0)), t1.Add(wide(s1)), t2.Add(wide(s2))
	}
	t0.Store(&sums[0])
	t1.Store(&sums[1])
	t2.Store(&sums[2])
	archsimd.ClearAVXUpperBits()
}

// wide adds the halves of v in float64.
func wide(v archsimd.Float32x16) archsimd.Float64x8 {
	return v.GetLo().ConvertToFloat64().Add(v.GetHi().ConvertToFloat64())
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

// firstBroken returns the first place, a multiple of 16, of a run of 16 with a NaN or +Inf; len(x) or up to 15 less where there is none.
func firstBroken(x []float32) int {
	i, end := 0, archsimd.BroadcastFloat32x16(most)
	for i+16 <= len(x) && archsimd.LoadFloat32x16((*[16]float32)(x[i:])).LessEqual(end).ToBits() == 0xffff {
		i += 16
	}
	archsimd.ClearAVXUpperBits()
	return i
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
