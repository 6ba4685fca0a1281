package temper_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"qr-gateway/sampler/temper"
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

func near(got, want, tol float64) bool {
	if math.IsInf(want, 0) || math.IsNaN(want) {
		return got == want
	}
	return math.Abs(got-want) <= tol*max(1, math.Abs(want))
}

func TestMomentsVectors(t *testing.T) {
	f := loadVectors(t)
	for name, v := range f.Vectors {
		row := f.row(t, name)
		h, vh := temper.Moments(row)
		if !near(h, float64(v.H), 1e-12) || !near(vh, float64(v.VH), 1e-12) {
			t.Errorf("%s: H %v, VH %v, want %v, %v", name, h, vh, v.H, v.VH)
		}
		if v.H > 0 && (math.Abs(h/float64(v.H)-1) > 1e-10 || v.VH > 0 && math.Abs(vh/float64(v.VH)-1) > 1e-10) {
			t.Errorf("%s: H %v, VH %v, want %v, %v: too few digits", name, h, vh, v.H, v.VH)
		}
		if h32, vh32 := temper.Moments(narrow(row)); v.Float32 && (h32 != h || vh32 != vh) {
			t.Errorf("%s as float32: H %v, VH %v, want %v, %v", name, h32, vh32, h, vh)
		}
	}
}

func narrow(row []float64) []float32 {
	out := make([]float32, len(row))
	for i, v := range row {
		out[i] = float32(v)
	}
	return out
}

// answer runs one strategy over the rows of one answer.
type answer struct {
	temper.Strategy
	nVocab int
	out    temper.Output
}

func begin(t *testing.T, name string, nVocab int, v values) *answer {
	t.Helper()
	k, err := temper.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := k.New(v, nVocab)
	if err != nil {
		t.Fatalf("%s over %d tokens with %v: %v", name, nVocab, v, err)
	}
	return &answer{Strategy: s, nVocab: nVocab}
}

// plan decides for row and returns what was decided, which stays valid until the next call.
func (a *answer) plan(row []float64, e *temper.Evidence) (*temper.Output, error) {
	h, vh := temper.Moments(row)
	in := temper.Input{Row64: row, H: h, VH: vh, HNorm: h / math.Log(float64(a.nVocab)), Gate: e}
	if a.nVocab == 1 {
		in.HNorm = 0
	}
	a.out = temper.Output{Row: a.out.Row[:0], Notes: a.out.Notes[:0]}
	err := a.Plan(&in, &a.out)
	return &a.out, err
}

// differences are the cases where what is right here is not what the file has, by strategy and vector.
//
//   - Rows with a logit that is NaN or +Inf: the file wants them refused. Here such a logit counts as absent, as it does in the selection:
//     the distribution is that of the tokens that are left, and a row with none left is refused by the selection.
//   - edt with its least temperature over the largest: the file gives the least; here it is refused, since nobody can mean it.
//   - coherence_gate after a z that is NaN: the file repeats the NaN as coherence_z; here the diagnostic is left out.
//   - ring_buffer_ar with a table of embeddings: no request can attach one, so likeness is by id alone.
const skipEmbeddings = "embeddings_attached"

func TestVectors(t *testing.T) {
	f := loadVectors(t)
	ran := 0
	for i, c := range f.Cases {
		if c.Embeddings != nil {
			continue
		}
		ran++
		t.Run(fmt.Sprintf("%d/%s/%s", i, c.Strategy, c.Vector), func(t *testing.T) { f.runCase(t, &c) })
	}
	if ran != 329 {
		t.Errorf("%d cases, want 329", ran)
	}
}

func (f *vectorFile) runCase(t *testing.T, c *vectorCase) {
	t.Helper()
	if c.Vector == "" && c.Steps == nil {
		k, err := temper.Find(c.Strategy)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.New(f.values(c), *c.Vocab); (err != nil) != (c.ConstructError != nil) {
			t.Errorf("a vocabulary of %d: error %v", *c.Vocab, err)
		}
		return
	}
	if c.Steps != nil {
		f.runSteps(t, c)
		return
	}
	row, v := f.row(t, c.Vector), f.values(c)
	if c.Strategy == "edt" && v.Number("qr_edt_min_temp") > v.Number("qr_edt_max_temp") {
		f.refused(t, c, v)
		return
	}
	f.compare(t, f.begin(t, c, len(row)), row, nil, c.Expect)
}

// refused holds that the bounds of c are; see differences.
func (f *vectorFile) refused(t *testing.T, c *vectorCase, v values) {
	t.Helper()
	k, err := temper.Find(c.Strategy)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.New(v, 8); !errors.Is(err, temper.ErrBounds) {
		t.Errorf("bounds: error %v", err)
	}
}

func (f *vectorFile) begin(t *testing.T, c *vectorCase, nVocab int) *answer {
	t.Helper()
	if c.Vocab != nil {
		nVocab = *c.Vocab
	}
	return begin(t, c.Strategy, nVocab, f.values(c))
}

// values are the parameters of a case over the file's defaults.
func (f *vectorFile) values(c *vectorCase) values {
	v := values{}
	for _, from := range []map[string]any{f.Defaults, c.Params} {
		for name, value := range from {
			v["qr_"+name] = value
		}
	}
	v["qr_temperature"] = v["qr_fixed_temperature"]
	return v
}

func (f *vectorFile) runSteps(t *testing.T, c *vectorCase) {
	t.Helper()
	var a *answer
	for i, s := range c.Steps {
		row := f.row(t, s.Vector+c.Vector)
		if a == nil {
			a = f.begin(t, c, len(row))
		}
		if c.Strategy == "coherence_gate" || c.Strategy == "hvh_drift" {
			a.nVocab = len(row) // the file takes H/ln V of each row by itself
		}
		if s.Observe != nil {
			a.Chosen(*s.Observe)
		}
		var e *temper.Evidence
		if v, ok := f.Evidence[s.Evidence]; ok {
			e = &temper.Evidence{Z: float64(v.Z), R: float64(v.R), Valid: v.Valid}
		}
		if !f.compare(t, a, row, e, s.Expect) {
			t.Fatalf("step %d", i)
		}
	}
}

// compare plans row and reports whether everything that is expected came out.
func (f *vectorFile) compare(t *testing.T, a *answer, row []float64, e *temper.Evidence, want expect) bool {
	t.Helper()
	out, err := a.plan(row, e)
	if err != nil {
		t.Error(err)
		return false
	}
	got := map[string]float64{"temperature": out.Temperature}
	if out.HasMinP {
		got["min_p"] = out.MinP
	}
	got["shannon_entropy"], got["varentropy"] = temper.Moments(row)
	for _, n := range out.Notes {
		got[n.Name] = n.Value
	}
	ok := compareRows(t, out.Row, want["transformed_logits"], f.Tolerance.Relative)
	for name := range want {
		w, is := want.number(name)
		if !is || name == skipEmbeddings || math.IsNaN(w) {
			continue
		}
		tol := f.Tolerance.Relative
		if _, ill := want["ill_conditioned"]; ill {
			tol = 1e-6
		}
		if g, has := got[name]; !has || !near(g, w, tol) {
			t.Errorf("%s is %v (there: %v), want %v", name, g, has, w)
			ok = false
		}
	}
	if _, has := want["min_p"]; !has && out.HasMinP && want["temperature"] != nil && len(want) > 1 && want["shannon_entropy"] == nil {
		t.Errorf("a min-p of %v, want none", out.MinP)
		ok = false
	}
	return ok
}

// compareRows compares transformed logits with all of them, or with their sum and some places.
func compareRows(t *testing.T, got []float64, raw json.RawMessage, tol float64) bool {
	t.Helper()
	var want *struct {
		Values []*num
		N      int
		Sum    num
		At     [][2]num
	}
	if err := json.Unmarshal(raw, &want); raw != nil && err != nil {
		t.Fatal(err)
	}
	if raw == nil {
		return true
	}
	if want == nil {
		if len(got) > 0 {
			t.Errorf("a transformed row, want none")
		}
		return len(got) == 0
	}
	if n := max(len(want.Values), want.N); len(got) != n {
		t.Errorf("%d transformed logits, want %d", len(got), n)
		return false
	}
	ok := true
	check := func(i int, w float64) {
		if !near(got[i], w, tol) {
			t.Errorf("transformed logit %d is %v, want %v", i, got[i], w)
			ok = false
		}
	}
	for i, w := range want.Values {
		if w != nil {
			check(i, float64(*w))
		}
	}
	for _, at := range want.At {
		check(int(at[0]), float64(at[1]))
	}
	sum := 0.0
	for _, v := range got {
		sum += v
	}
	if want.N > 0 && !near(sum, float64(want.Sum), tol) {
		t.Errorf("transformed logits add up to %v, want %v", sum, want.Sum)
		ok = false
	}
	return ok
}

// TestDegenerateVectors plans rows without any logit: nothing fails, and the selection refuses them.
func TestDegenerateVectors(t *testing.T) {
	f := loadVectors(t)
	for _, c := range f.Degen {
		row := f.row(t, c.Vector)
		f.compare(t, f.begin(t, &c, len(row)), row, nil, c.Reference)
	}
	if len(f.Degen) != 11 {
		t.Errorf("%d rows, want 11", len(f.Degen))
	}
}

// TestDefects compares with what is right where the reference is not.
func TestDefects(t *testing.T) {
	f := loadVectors(t)
	ran, absent := 0, 0
	for _, c := range f.Defects {
		row := floats(c.Logits)
		if c.Logits == nil {
			row = f.row(t, c.Vector)
		}
		a := f.begin(t, &c, len(row))
		for _, id := range c.History {
			a.Chosen(id)
		}
		if _, refuse := c.Right["error"]; refuse {
			absent++
			f.compareAbsent(t, &c, a, row)
			continue
		}
		ran++
		if !f.compare(t, a, row, nil, c.Right) {
			t.Errorf("%s over %s", c.Strategy, c.Vector)
		}
	}
	if ran != 16 || absent != 22 {
		t.Errorf("%d defects and %d rows with what is not a number, want 16 and 22", ran, absent)
	}
}

// compareAbsent holds that a NaN or +Inf logit decides as a masked one does; see differences.
func (f *vectorFile) compareAbsent(t *testing.T, c *vectorCase, a *answer, row []float64) {
	t.Helper()
	masked := slices.Clone(row)
	masked[1] = math.Inf(-1)
	want, err := f.begin(t, c, len(row)).plan(masked, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.plan(row, nil)
	if err != nil || got.Temperature != want.Temperature || got.MinP != want.MinP || !slices.Equal(got.Row, want.Row) || len(got.Row) == 3 && !math.IsInf(got.Row[1], -1) {
		t.Errorf("%s over %v: %+v, error %v, want %+v", c.Strategy, row, got, err, want)
	}
}
