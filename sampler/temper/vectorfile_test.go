package temper_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// num is a number of a vector file: NaN and the infinities are written as words, false and true as themselves.
type num float64

func (n *num) UnmarshalJSON(b []byte) error {
	switch s := strings.Trim(string(b), `"`); s {
	case "inf":
		*n = num(math.Inf(1))
	case "-inf":
		*n = num(math.Inf(-1))
	case "nan":
		*n = num(math.NaN())
	case "true":
		*n = 1
	case "false":
		*n = 0
	default:
		return json.Unmarshal(b, (*float64)(n))
	}
	return nil
}

// vectorFile is testdata/temperature.json; its conventions are in the file.
type vectorFile struct {
	Evidence map[string]struct {
		Z, R  num
		Valid bool
	}
	Defaults  map[string]any
	Vectors   map[string]logits
	Cases     []vectorCase
	Degen     []vectorCase `json:"degenerate"`
	Defects   []vectorCase
	Tolerance struct {
		Relative float64 `json:"relative_or_absolute"`
	}
}

type logits struct {
	N          int
	Logits     []num
	Formula    string
	Float32    bool `json:"exact_in_float32"`
	H, VH, Sum num
	HNorm      num `json:"H_norm"`
}

type vectorCase struct {
	Strategy, Vector string
	Vocab            *int `json:"vocab_size"`
	Params           params
	Expect           expect
	Reference        expect // of degenerate rows
	Right            expect // of defects
	Logits           []num  // of defects, in place of a named vector
	Steps            []vectorStep
	History          []int32
	Embeddings       [][]float64
	ConstructError   *string `json:"construct_error"`
}

type vectorStep struct {
	Vector, Evidence string
	Observe          *int32
	Expect           expect
}

// params is an object, or an empty list where there are none.
type params map[string]any

func (p *params) UnmarshalJSON(b []byte) error {
	if string(b) == "[]" {
		return nil
	}
	return json.Unmarshal(b, (*map[string]any)(p))
}

// expect has temperature and min-p and, by their names, the diagnostics.
type expect map[string]json.RawMessage

func (e expect) number(name string) (float64, bool) {
	var n *num
	if raw, ok := e[name]; !ok || json.Unmarshal(raw, &n) != nil || n == nil {
		return 0, false
	}
	return float64(*n), true
}

func loadVectors(t *testing.T) *vectorFile {
	t.Helper()
	data, err := os.ReadFile("testdata/temperature.json")
	if err != nil {
		t.Fatal(err)
	}
	f := new(vectorFile)
	if err := json.Unmarshal(data, f); err != nil {
		t.Fatal(err)
	}
	return f
}

// row returns the logits called name.
func (f *vectorFile) row(t *testing.T, name string) []float64 {
	t.Helper()
	v, ok := f.Vectors[name]
	if !ok {
		t.Fatalf("no vector %q", name)
	}
	if v.Logits != nil {
		return floats(v.Logits)
	}
	row, base, every := make([]float64, v.N), v.Formula, 0
	if rest, ok := strings.CutSuffix(base, " with -inf at every index divisible by 3"); ok {
		base, every = f.Vectors[rest].Formula, 3
	}
	var n, step, mod int
	var tail string
	if _, err := fmt.Sscanf(base, "n=%d; r=(i*%d) mod %d; logit_i = %s", &n, &step, &mod, &tail); err != nil {
		t.Fatalf("%q: %v", base, err)
	}
	_, tail, _ = strings.Cut(base, "logit_i = ")
	for i := range row {
		r := float64(i * step % mod)
		switch tail {
		case "r/8 - 3":
			row[i] = r/8 - 3
		case "r*r/256":
			row[i] = r * r / 256
		case "r/64 - 8":
			row[i] = r/64 - 8
		case "r*r/65536":
			row[i] = r * r / 65536
		default:
			t.Fatalf("unknown formula %q", tail)
		}
		if every > 0 && i%every == 0 {
			row[i] = math.Inf(-1)
		}
	}
	return row
}

func floats(in []num) []float64 {
	out := make([]float64, len(in))
	for i, v := range in {
		out[i] = float64(v)
	}
	return out
}
