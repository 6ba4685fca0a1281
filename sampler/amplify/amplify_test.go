package amplify_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"qr-gateway/sampler/amplify"
)

func TestByteStd(t *testing.T) {
	if want := math.Sqrt((256.0*256 - 1) / 12); math.Abs(amplify.ByteStd-want) > 1e-13 {
		t.Errorf("ByteStd is %v, want %v", amplify.ByteStd, want)
	}
	if want := 255 / math.Sqrt(12); math.Abs(amplify.CompatStd-want) > 1e-13 {
		t.Errorf("CompatStd is %v, want %v", amplify.CompatStd, want)
	}
}

// loopSum is what Sum must agree with.
func loopSum(block []byte) (sum uint64) {
	for _, b := range block {
		sum += uint64(b)
	}
	return sum
}

func FuzzSum(f *testing.F) {
	f.Add([]byte{}, 0)
	f.Add([]byte{255}, 20481)
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, 117)
	f.Fuzz(func(t *testing.T, b []byte, times int) {
		block := bytes.Repeat(b, min(max(times, 0), 1<<16/(len(b)+1)))
		if got, want := amplify.Sum(block), loopSum(block); got != want {
			t.Errorf("%d bytes add up to %d, want %d", len(block), got, want)
		}
	})
}

// TestSumFull adds blocks of the largest byte, of every length around where lanes are folded: none may overflow.
func TestSumFull(t *testing.T) {
	full := bytes.Repeat([]byte{255}, 4200)
	for n := range full {
		if got := amplify.Sum(full[:n]); got != uint64(n)*255 {
			t.Fatalf("%d bytes of 255 add up to %d", n, got)
		}
	}
}

func blockGen() *rapid.Generator[[]byte] { return rapid.SliceOfN(rapid.Byte(), 1, 300) }

// TestZScoreLaws: u lies within its bounds and follows z, mirrored bytes give the mirrored number, and the order of bytes is nothing.
func TestZScoreLaws(t *testing.T) {
	a := open(t, amplify.Name, amplify.DefaultConfig())
	rapid.Check(t, func(t *rapid.T) {
		block, other := blockGen().Draw(t, "block"), blockGen().Draw(t, "other")
		r, err := a.Read(block)
		if err != nil {
			t.Fatal(err)
		}
		s, err := a.Read(other)
		if err != nil {
			t.Fatal(err)
		}
		if !(r.U >= amplify.Epsilon && r.U <= 1-amplify.Epsilon) || r.Z < s.Z && r.U > s.U {
			t.Fatalf("%+v and %+v", r, s)
		}
		mirrored := make([]byte, len(block))
		for i, b := range block {
			mirrored[len(block)-1-i] = 255 - b
		}
		m, err := a.Read(mirrored)
		if err != nil || math.Abs(m.U-(1-r.U)) > 1e-12 || math.Abs(m.Z+r.Z) > 1e-12*(1+math.Abs(r.Z)) {
			t.Fatalf("%+v mirrored is %+v, error %v", r, m, err)
		}
	})
}

// TestThoughtLaws: the numbers are those of zscore_mean, and the total is the reading of everything in one block.
func TestThoughtLaws(t *testing.T) {
	cfg := amplify.DefaultConfig()
	plain := open(t, amplify.Name, cfg)
	rapid.Check(t, func(t *rapid.T) {
		a, err := amplify.NewZScoreThought(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var all []byte
		for _, block := range rapid.SliceOfN(blockGen(), 1, 10).Draw(t, "blocks") {
			got, err := a.Read(block)
			if err != nil {
				t.Fatal(err)
			}
			if want, _ := plain.Read(block); got != want {
				t.Fatalf("%+v, want %+v", got, want)
			}
			all = append(all, block...)
		}
		want, _ := plain.Read(all)
		if got := a.Total(); got.Reading != want || got.Bias != want.Mean-cfg.Mean {
			t.Fatalf("total %+v, want %+v", got, want)
		}
	})
}

// TestECDFLaws: u and rank are those of counting, whatever means are equal.
func TestECDFLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := rapid.SliceOfN(rapid.SliceOfN(rapid.ByteRange(100, 103), 4, 4), 2, 40).Draw(t, "calibration")
		cal, err := calibrate(blocks)
		if errors.Is(err, amplify.ErrNoVariance) {
			t.Skip()
		}
		if err != nil {
			t.Fatal(err)
		}
		a, err := amplify.NewECDF(cal.Config())
		if err != nil {
			t.Fatal(err)
		}
		r, err := a.Read(rapid.SliceOfN(rapid.ByteRange(99, 104), 4, 4).Draw(t, "block"))
		if err != nil {
			t.Fatal(err)
		}
		below, notAbove := 0, 0
		for _, m := range cal.Means() {
			if m < r.Mean {
				below++
			}
			if m <= r.Mean {
				notAbove++
			}
		}
		if want := float64(below+notAbove+1) / float64(2*(len(blocks)+1)); r.U != want || r.Rank != notAbove || r.Of != len(blocks) {
			t.Fatalf("%+v, want u %v with %d below and %d not above", r, want, below, notAbove)
		}
	})
}

func TestRefuses(t *testing.T) {
	nan := math.NaN()
	bad := []amplify.Config{
		{},
		{Mean: 127.5, Std: -1},
		{Mean: nan, Std: 1},
		{Mean: 300, Std: 1},
		{Mean: 1, Std: math.Inf(1)},
		{Mean: 1, Std: nan},
		{Mean: 1, Std: 1, Epsilon: 0.5},
		{Mean: 1, Std: 1, Epsilon: -1},
		{Mean: 1, Std: 1, Epsilon: nan},
	}
	for _, c := range bad {
		for _, name := range []string{amplify.Name, amplify.NameThought} {
			k, err := amplify.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := k.New(c); err == nil {
				t.Errorf("%s with %+v: no error", name, c)
			}
		}
	}
	if _, err := amplify.New(amplify.Config{Mean: 127.5, Std: 1, Epsilon: 2}); err == nil {
		t.Error("New takes an epsilon of 2")
	}
	if _, err := amplify.Find("cosmic"); !errors.Is(err, amplify.ErrUnknown) {
		t.Errorf("an unknown name: error %v", err)
	}
	if _, err := open(t, amplify.NameServer, amplify.Config{}).Read([]byte{1}); !errors.Is(err, amplify.ErrServer) {
		t.Errorf("server: error %v", err)
	}
}

func TestECDFRefuses(t *testing.T) {
	cal, err := amplify.Calibrate(16, []float64{100, 130})
	if err != nil {
		t.Fatal(err)
	}
	cfg := cal.Config()
	cfg.BlockBytes = 16
	if _, err := amplify.NewECDF(cfg); err != nil {
		t.Errorf("the same length: error %v", err)
	}
	cfg.BlockBytes = 20
	if _, err := amplify.NewECDF(cfg); err == nil {
		t.Error("another length: no error")
	}
	cfg.BlockBytes, cfg.Epsilon = 0, 0.7
	if _, err := amplify.NewECDF(cfg); err == nil {
		t.Error("an epsilon of 0.7: no error")
	}
	cfg.Calibration = new(amplify.Calibration)
	if _, err := amplify.NewECDF(cfg); !errors.Is(err, amplify.ErrNoCalibration) {
		t.Errorf("an empty calibration: error %v", err)
	}
}

// TestInside: u never reaches 0 or 1, even where no distance is asked for.
func TestInside(t *testing.T) {
	cfg := amplify.DefaultConfig()
	cfg.Epsilon = 0
	a := open(t, amplify.Name, cfg)
	for _, b := range []byte{0, 255} {
		r, err := a.Read(bytes.Repeat([]byte{b}, 20480))
		if err != nil || !(r.U > 0 && r.U < 1) {
			t.Errorf("bytes of %d: %+v, error %v", b, r, err)
		}
	}
}

// TestKinds: the table is complete, and what is handed out is not the table.
func TestKinds(t *testing.T) {
	kinds := amplify.Kinds()
	if len(kinds) != 4 {
		t.Fatalf("%d amplifiers, want 4", len(kinds))
	}
	for _, k := range kinds {
		if k.Name == "" || k.Help == "" || k.New == nil {
			t.Errorf("incomplete: %+v", k)
		}
		for i, f := range k.Fields {
			if f.Help == "" || f.Env == "" || f.Type == "" {
				t.Errorf("%s: incomplete field %+v", k.Name, f)
			}
			k.Fields[i].Key = "spoilt"
		}
	}
	for _, k := range amplify.Kinds() {
		for _, f := range k.Fields {
			if f.Key == "spoilt" {
				t.Error("the table can be changed")
			}
		}
	}
}

// amplifiers are all that read bytes, ready for blocks of 20,480.
func amplifiers(tb testing.TB) map[string]amplify.Amplifier {
	tb.Helper()
	means := make([]float64, 2000)
	for i := range means {
		means[i] = 127 + float64(i)/2000
	}
	cal, err := amplify.Calibrate(20480, means)
	if err != nil {
		tb.Fatal(err)
	}
	all := map[string]amplify.Amplifier{}
	for _, k := range amplify.Kinds() {
		if k.Server {
			continue
		}
		if all[k.Name], err = k.New(cal.Config()); err != nil {
			tb.Fatal(err)
		}
	}
	return all
}

func TestReadAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations are counted without the race detector")
	}
	block := lcg(1, 20480)
	for name, a := range amplifiers(t) {
		if n := testing.AllocsPerRun(10, func() { _, _ = a.Read(block) }); n != 0 {
			t.Errorf("%s: %v allocations a number", name, n)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	block := lcg(1, 20480)
	for name, a := range amplifiers(b) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(20480)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = a.Read(block)
			}
		})
	}
}

func BenchmarkSum(b *testing.B) {
	block := lcg(1, 20480)
	for _, c := range []struct {
		name string
		sum  func([]byte) uint64
	}{{"words", amplify.Sum}, {"loop", loopSum}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(20480)
			for b.Loop() {
				if c.sum(block) == 0 {
					b.Fatal("sum 0")
				}
			}
		})
	}
}
