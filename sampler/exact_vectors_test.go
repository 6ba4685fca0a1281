package sampler_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"testing"

	"qr-gateway/sampler"
)

// number is a JSON number or one of the words inf, -inf, nan.
type number float64

func (n *number) UnmarshalJSON(data []byte) error {
	var word string
	if json.Unmarshal(data, &word) == nil {
		_, err := fmt.Sscan(word, (*float64)(n))
		return err
	}
	return json.Unmarshal(data, (*float64)(n))
}

// cutCase is one set of parameters, and what numbers choose under it. Lists are parallel.
type cutCase struct {
	Vector        string
	Name          string
	N             int
	Temperature   number
	TopK          int     `json:"top_k"`
	TopP          float64 `json:"top_p"`
	MinP          float64 `json:"min_p"`
	TruncateFirst bool    `json:"truncate_first"`
	Candidates    int     `json:"num_candidates"`
	AfterTopK     int     `json:"effective_top_k"`
	AfterMinP     int     `json:"effective_min_p_candidates"`
	Ties          bool
	U             []float64
	Rank          []int
	Token         []*int32
	Prob          []float64
	F32           []int
	Logits        []number
	Right         struct {
		Token     []*int32
		Survivors []int32
		Error     string
	}
	Rows []struct {
		U     float64
		Right struct {
			Rank  int
			Token *int32
			Prob  float64
		}
	}
}

func (c *cutCase) cut() sampler.Cut {
	return sampler.Cut{Temperature: float64(c.Temperature), TopK: c.TopK, TopP: c.TopP, MinP: c.MinP, TruncateFirst: c.TruncateFirst}
}

func (c *cutCase) String() string {
	return fmt.Sprintf("%s%s T=%v top-k %d top-p %v min-p %v truncate first %v", c.Vector, c.Name, c.Temperature, c.TopK, c.TopP, c.MinP, c.TruncateFirst)
}

// maskedCase is a cutCase with one number.
type maskedCase struct {
	cutCase
	U float64
}

type cutCases struct {
	Vectors map[string]struct {
		N      int
		Logits []number
	}
	Cases    []cutCase
	Large    []cutCase
	Boundary []struct {
		Equal      int `json:"equal_logits"`
		U          float64
		UIs        string `json:"u_is"`
		Rank       int
		Prob       float64
		Candidates int `json:"num_candidates"`
	}
	FullyMasked []maskedCase `json:"fully_masked"`
	Defects     []cutCase
}

func loadCuts(t *testing.T) *cutCases {
	t.Helper()
	data, err := os.ReadFile("testdata/selector.json")
	if err != nil {
		t.Fatal(err)
	}
	all := &cutCases{}
	if err := json.Unmarshal(data, all); err != nil {
		t.Fatal(err)
	}
	return all
}

// row is a vector by its name: listed, or by its formula.
func (c *cutCases) row(name string) []float64 {
	v := c.Vectors[name]
	row := make([]float64, v.N)
	if v.Logits != nil {
		for i, x := range v.Logits {
			row[i] = float64(x)
		}
		return row
	}
	for i := range row {
		r, r1000, r4096 := float64(i*29%67), float64(i*7919%1009), float64(i*7919%4099)
		row[i] = map[string]float64{
			"V64a": r/8 - 3, "V64b": r * r / 256, "V1000a": r1000/64 - 8, "V1000b": r1000 * r1000 / 65536, "V4096": r4096 * r4096 / 1048576,
		}[name]
	}
	return row
}

const bigVocab = 151936

// bigRow is one of four shapes at the size of a real vocabulary.
func bigRow(name string) []float64 {
	row := make([]float64, bigVocab)
	for i := range row {
		t := i * 7919 % 151967
		h := uint32(i)*2654435761 + 12345
		g := h*2246822519 + 3266489917
		switch name {
		case "zipf":
			row[i] = -1.25*float64(bits.Len(uint(t))) - float64(t)/65536
		case "slope":
			row[i] = -float64(t) / 8192
		case "bulk":
			row[i] = (float64(h>>16) + float64(h&65535) + float64(g>>16) + float64(g&65535) - 131072) / 16384
		case "heavy":
			if row[i] = -float64(t) / 16384; t < 64 {
				row[i] = 12 - float64(t)/8
			}
		}
	}
	return row
}

func to32(row []float64) []float32 {
	out := make([]float32, len(row))
	for i, v := range row {
		out[i] = float32(v)
	}
	return out
}

// chooser is either decoder on one row.
type chooser func(c sampler.Cut, u float64) (sampler.Draw, error)

func exactly(row []float64) chooser {
	e := sampler.NewExact(len(row))
	return func(c sampler.Cut, u float64) (sampler.Draw, error) { return e.Choose(row, nil, c, u) }
}

func plainly(row []float64) chooser {
	s, r := sampler.New(len(row)), to32(row)
	return func(c sampler.Cut, u float64) (sampler.Draw, error) { return s.Choose(r, nil, c, u) }
}

// present is the number of finite logits.
func present(row []float64) (n int) {
	for _, v := range row {
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			n++
		}
	}
	return n
}

func TestExactVectors(t *testing.T) {
	all, points := loadCuts(t), 0
	for i := range all.Cases {
		c := &all.Cases[i]
		row := all.row(c.Vector)
		choose := exactly(row)
		for j, u := range c.U {
			points++
			d, err := choose(c.cut(), u)
			if err != nil || d.Rank != c.Rank[j] || c.Token[j] != nil && d.Token != *c.Token[j] || math.Abs(d.Prob-c.Prob[j]) > 1e-12 {
				t.Errorf("%v, u %v: got %+v, error %v, want rank %d, probability %v", c, u, d, err, c.Rank[j], c.Prob[j])
			}
			// Greedy cases have no counts but one. Tokens that are absent are not counted here, and are there.
			if d.Candidates != c.Candidates || c.AfterMinP > 0 && d.AfterMinP != c.AfterMinP ||
				c.AfterTopK > 0 && d.AfterTopK != min(c.AfterTopK, present(row)) {
				t.Errorf("%v, u %v: got %+v, want %d after top-k, %d after min-p, %d in all", c, u, d, c.AfterTopK, c.AfterMinP, c.Candidates)
			}
		}
	}
	if points < 5000 {
		t.Errorf("%d points; the file has more", points)
	}
}

// TestExactLarge has the ranks of a real vocabulary, the tail included.
func TestExactLarge(t *testing.T) {
	all := loadCuts(t)
	for i := range all.Large {
		c := &all.Large[i]
		choose := exactly(bigRow(c.Name))
		for j, u := range c.U {
			d, err := choose(c.cut(), u)
			if err != nil || d.Rank != c.Rank[j] || c.Token[j] != nil && d.Token != *c.Token[j] || math.Abs(d.Prob-c.Prob[j]) > 1e-12 {
				t.Errorf("%v, u %v: got %+v, error %v, want rank %d, probability %v", c, u, d, err, c.Rank[j], c.Prob[j])
			}
		}
	}
}

// TestExactBoundary has numbers exactly on a step of the CDF, and one unit in the last place beside it. A number of 1 or more, which no
// amplifier makes, is refused here; elsewhere it takes the last token.
func TestExactBoundary(t *testing.T) {
	for _, b := range loadCuts(t).Boundary {
		d, err := exactly(make([]float64, b.Equal))(sampler.Cut{Temperature: 1, TopP: 1}, b.U)
		if b.U >= 1 {
			if err == nil {
				t.Errorf("%d equal, u %s: got %+v, want an error", b.Equal, b.UIs, d)
			}
			continue
		}
		if err != nil || d.Rank != b.Rank || math.Abs(d.Prob-b.Prob) > 1e-12 || d.Candidates != b.Candidates {
			t.Errorf("%d equal, u %s: got %+v, error %v, want rank %d", b.Equal, b.UIs, d, err, b.Rank)
		}
	}
}

// TestFullyMasked: a row without a token has no right choice.
func TestFullyMasked(t *testing.T) {
	for _, c := range loadCuts(t).FullyMasked {
		row := make([]float64, len(c.Logits))
		for i, v := range c.Logits {
			row[i] = float64(v)
		}
		for name, choose := range map[string]chooser{"exact": exactly(row), "plain": plainly(row)} {
			if d, err := choose(c.cut(), 0.6); !errors.Is(err, sampler.ErrNoCandidates) {
				t.Errorf("%s, %v: got %+v, error %v", name, &c, d, err)
			}
		}
	}
}

// TestSelectorDefects has what is right where the published program is known to go wrong: ties, rows that no model in order gives, and the
// tail of a large vocabulary.
func TestSelectorDefects(t *testing.T) {
	all := loadCuts(t)
	for i := range all.Defects {
		c := &all.Defects[i]
		switch {
		case c.Right.Error != "":
			refuses(t, all, c)
		case c.Name != "":
			tail(t, c)
		default:
			tied(t, all, c)
		}
	}
}

// tied compares choices among equal logits.
func tied(t *testing.T, all *cutCases, c *cutCase) {
	row := all.row(c.Vector)
	for name, choose := range map[string]chooser{"exact": exactly(row), "plain": plainly(row)} {
		for j, u := range c.U {
			d, err := choose(c.cut(), u)
			if err != nil || d.Token != *c.Right.Token[j] || c.Right.Survivors != nil && d.Candidates != len(c.Right.Survivors) {
				t.Errorf("%s, %v, u %v: got %+v, error %v, want token %d", name, c, u, d, err, *c.Right.Token[j])
			}
		}
	}
}

// refuses holds that an invalid row or temperature is an error of the stream, which sees every row first.
func refuses(t *testing.T, all *cutCases, c *cutCase) {
	if c.Vector != "" { // a temperature that is NaN
		if d, err := exactly(all.row(c.Vector))(c.cut(), 0.5); err == nil {
			t.Errorf("%v: got %+v, want an error", c, d)
		}
		return
	}
	row := make([]float64, len(c.Logits))
	for i, v := range c.Logits {
		row[i] = float64(v)
	}
	p := sampler.Defaults()
	p.Temperature = float64(c.Temperature)
	s := sampler.NewStream(len(row))
	if err := s.Begin(&p, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Plan64(row, nil); !errors.Is(err, sampler.ErrLogits) {
		t.Errorf("%v: error %v", row, err)
	}
	if _, err := s.Plan(to32(row), nil); !errors.Is(err, sampler.ErrLogits) {
		t.Errorf("%v: error %v", row, err)
	}
}

// tail compares ranks that a running sum in float32 gets wrong.
func tail(t *testing.T, c *cutCase) {
	choose := exactly(bigRow(c.Name))
	for _, r := range c.Rows {
		d, err := choose(c.cut(), r.U)
		if err != nil || d.Rank != r.Right.Rank || r.Right.Token != nil && d.Token != *r.Right.Token || math.Abs(d.Prob-r.Right.Prob) > 1e-12 {
			t.Errorf("%v, u %v: got %+v, error %v, want %+v", c, r.U, d, err, r.Right)
		}
	}
}

// TestExactTopPReached: top-p keeps no token more than it takes to reach it exactly.
func TestExactTopPReached(t *testing.T) {
	for p, want := range map[float64]int{0.25: 1, 0.5: 2, 0.50001: 3, 0.75: 3, 0.99: 4} {
		d, err := exactly(make([]float64, 4))(sampler.Cut{Temperature: 1, TopP: p}, 0.999)
		if err != nil || d.Candidates != want || d.Rank != want-1 {
			t.Errorf("top-p %v of four equal tokens: got %+v, error %v, want %d", p, d, err, want)
		}
	}
}
