package temper_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"qr-gateway/sampler/temper"
)

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
	s, err := kind(t, name).New(v, nVocab)
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

// TestVectors replays every case of the file. These differ on purpose:
//
//   - edt with its least temperature over the largest (over L2, ties6, dom5, V64a, V1000b and mid8): the file gives the least; here it is
//     refused, since nobody can mean it.
//   - ring_buffer_ar with a table of embeddings (over L1): no request can attach one, so likeness is by id alone. The diagnostic
//     embeddings_attached is left out.
//   - coherence_gate after a z that is NaN: the file repeats the NaN as coherence_z; here that diagnostic is left out.
//   - Rows with a logit that is NaN or +Inf (22 of the defects): the file wants them refused. That is for whoever takes in the row; to a
//     strategy such a logit is absent.
func TestVectors(t *testing.T) {
	f := loadVectors(t)
	ran := map[string]int{}
	for i, c := range f.Cases {
		v := f.values(&c)
		run, how := f.runCase, "as is"
		switch {
		case c.Embeddings != nil:
			run, how = nil, "embeddings"
		case v.Number("qr_edt_min_temp") > v.Number("qr_edt_max_temp"):
			run, how = f.refused, "refused"
		}
		if ran[how]++; run != nil {
			t.Run(fmt.Sprintf("%d/%s/%s", i, c.Strategy, c.Vector), func(t *testing.T) { run(t, &c) })
		}
	}
	if want := map[string]int{"as is": 323, "refused": 6, "embeddings": 1}; !maps.Equal(ran, want) {
		t.Errorf("cases %v, want %v", ran, want)
	}
}

func (f *vectorFile) runCase(t *testing.T, c *vectorCase) {
	t.Helper()
	if c.Vector == "" && c.Steps == nil {
		if _, err := kind(t, c.Strategy).New(f.values(c), *c.Vocab); (err != nil) != (c.ConstructError != nil) {
			t.Errorf("a vocabulary of %d: error %v", *c.Vocab, err)
		}
		return
	}
	if c.Steps != nil {
		f.runSteps(t, c)
		return
	}
	row := f.row(t, c.Vector)
	f.compare(t, f.begin(t, c, len(row)), row, nil, c.Expect)
}

// refused holds that the bounds of c are.
func (f *vectorFile) refused(t *testing.T, c *vectorCase) {
	t.Helper()
	if _, err := kind(t, c.Strategy).New(f.values(c), 8); !errors.Is(err, temper.ErrBounds) {
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
		if !is || name == "embeddings_attached" || math.IsNaN(w) {
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
	if want["temperature"] != nil && want["min_p"] == nil && out.HasMinP {
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

// compareAbsent holds that a NaN or +Inf logit decides as a masked one does.
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
