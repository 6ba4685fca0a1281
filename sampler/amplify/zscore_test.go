package amplify_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"qr-gateway/sampler/amplify"
)

// vector is one case of testdata/zscore.json: a block of bytes by rule, and the correctly rounded u.
type vector struct {
	Input struct {
		Kind    string
		Hex     string
		Value   byte
		A, B    int
		Seed    uint32
		N       int
		ByteSum uint64 `json:"byte_sum"`
	}
	Mean, Std, Z, U float64
}

func (v *vector) bytes(t *testing.T) []byte {
	t.Helper()
	if v.Input.Kind == "hex" {
		b, err := hex.DecodeString(v.Input.Hex)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b, x := make([]byte, v.Input.N), v.Input.Seed
	for i := range b {
		switch v.Input.Kind {
		case "const":
			b[i] = v.Input.Value
		case "affine":
			b[i] = byte(v.Input.A*i + v.Input.B)
		case "near":
			b[i] = byte(127 + i%2)
			if i%100 == 0 {
				b[i] = 129
			}
		case "lcg":
			x = 1664525*x + 1013904223
			b[i] = byte(x >> 24)
		default:
			t.Fatalf("unknown kind %q", v.Input.Kind)
		}
	}
	return b
}

func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/zscore.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	for i, v := range vectors {
		a, err := amplify.New(amplify.Config{Mean: v.Mean, Std: v.Std})
		if err != nil {
			t.Fatal(err)
		}
		block := v.bytes(t)
		if sum := amplify.Sum(block); sum != v.Input.ByteSum {
			t.Fatalf("case %d (%s): bytes add up to %d, want %d", i, v.Input.Kind, sum, v.Input.ByteSum)
		}
		u, z, err := a.UZ(block)
		if err != nil || math.Abs(u-v.U) > 1e-12 || math.Abs(z-v.Z) > 1e-12*max(1, math.Abs(v.Z)) {
			t.Errorf("case %d (%s): u %v, z %v, error %v, want %v, %v", i, v.Input.Kind, u, z, err, v.U, v.Z)
		}
	}
}

func TestByteStd(t *testing.T) {
	if want := math.Sqrt((256.0*256 - 1) / 12); math.Abs(amplify.ByteStd-want) > 1e-13 {
		t.Errorf("ByteStd is %v, want %v", amplify.ByteStd, want)
	}
}

// TestUniform compares the numbers of a perfect source with the uniform law: the largest distance of the distributions (Kolmogorov
// and Smirnov) of n draws exceeds 2.7/sqrt(n) about once in a million.
func TestUniform(t *testing.T) {
	a, err := amplify.New(amplify.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	const n, cells = 20000, 1000
	r, block := rand.NewChaCha8([32]byte{1}), make([]byte, 1024)
	var count [cells]int
	for range n {
		if _, err := r.Read(block); err != nil {
			t.Fatal(err)
		}
		u, err := a.U(block)
		if err != nil {
			t.Fatal(err)
		}
		count[int(u*cells)]++
	}
	sum, worst := 0, 0.0
	for i, c := range count {
		sum += c
		worst = max(worst, math.Abs(float64(sum)/n-float64(i+1)/cells))
	}
	if worst > 2.7/math.Sqrt(n) {
		t.Errorf("distance %v from uniform", worst)
	}
}

func TestRefuses(t *testing.T) {
	a, err := amplify.New(amplify.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.U(nil); !errors.Is(err, amplify.ErrEmpty) {
		t.Errorf("no bytes: error %v", err)
	}
	for _, c := range []amplify.Config{{}, {Mean: 127.5, Std: -1}, {Mean: math.NaN(), Std: 1}, {Mean: 300, Std: 1}, {Mean: 1, Std: math.Inf(1)}} {
		if _, err := amplify.New(c); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}

func TestUAllocatesNothing(t *testing.T) {
	a, err := amplify.New(amplify.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 20480)
	if n := testing.AllocsPerRun(10, func() { _, _ = a.U(block) }); n != 0 {
		t.Errorf("%v allocations a number", n)
	}
}

func BenchmarkU(b *testing.B) {
	a, err := amplify.New(amplify.DefaultConfig())
	if err != nil {
		b.Fatal(err)
	}
	block := make([]byte, 20480)
	b.SetBytes(20480)
	for b.Loop() {
		_, _ = a.U(block)
	}
}
