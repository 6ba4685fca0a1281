package amplify_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"qr-gateway/sampler/amplify"
)

// vectorFile is testdata/amplifier.json; its conventions are in the file.
type vectorFile struct {
	Cases, Defects []vectorCase
}

type vectorCase struct {
	Amplifier   string
	Why         string
	Params      vectorParams
	Input       *blockRule
	Expect      expect
	UExact      *float64 `json:"u_exact"`
	ExpectError *string  `json:"expect_error"`
	Steps       []struct {
		Op          string
		Input       *blockRule
		Expect      expect
		ExpectError *string `json:"expect_error"`
	}
	Calibration *struct {
		Kind, Hex string
		Blocks, N int
		Seed      string `json:"seed_of_block_j"`
	}
	ByteSums   []uint64 `json:"byte_sums_of_blocks"`
	BlocksHex  []string `json:"blocks_hex"`
	Calibrated struct {
		Mean float64 `json:"population_mean"`
		Std  float64 `json:"population_std"`
	} `json:"expect_calibrated"`
	Then []struct {
		Input  blockRule
		Expect expect
	}
	Digest struct {
		First, Last []float64
		SumOfSums   uint64 `json:"sum_of_byte_sums"`
		Distinct    int
	} `json:"sorted_means_digest"`
	Probes []struct {
		Input    blockRule
		Expect   expect
		Below    int `json:"count_below"`
		NotAbove int `json:"count_at_or_below"`
		Right    struct {
			U float64 `json:"u_mid_rank"`
		}
		Reference struct{ U float64 } `json:"reference_do_not_reproduce"`
	}
	Right struct {
		expect
		Error string
	}
}

type vectorParams struct {
	Mean    *float64 `json:"population_mean"`
	Std     *float64 `json:"population_std"`
	Epsilon *float64 `json:"uniform_clamp_epsilon"`
	Bytes   int      `json:"sample_count"`
}

// config is that of the parameters, over the defaults of this package.
func (p vectorParams) config() amplify.Config {
	c := amplify.DefaultConfig()
	set := func(to, from *float64) {
		if from != nil {
			*to = *from
		}
	}
	set(&c.Mean, p.Mean)
	set(&c.Std, p.Std)
	set(&c.Epsilon, p.Epsilon)
	return c
}

type expect struct {
	U, Bias *float64
	Mean    *float64 `json:"sample_mean"`
	Z       *float64 `json:"z_score"`
	SEM     *float64
	Bytes   *int `json:"sample_count"`
	Rank    *int `json:"ecdf_rank"`
	Of      *int `json:"calibration_size"`
}

// blockRule says how a block is made.
type blockRule struct {
	Kind, Hex string
	Value     byte
	A, B      int
	Seed      uint32
	N         int
	ByteSum   *uint64 `json:"byte_sum"`
}

func (r *blockRule) bytes(t *testing.T) []byte {
	t.Helper()
	b := r.make(t)
	if r.ByteSum != nil && amplify.Sum(b) != *r.ByteSum {
		t.Fatalf("%+v: bytes add up to %d", r, amplify.Sum(b))
	}
	return b
}

func (r *blockRule) make(t *testing.T) []byte {
	t.Helper()
	switch r.Kind {
	case "hex":
		b, err := hex.DecodeString(r.Hex)
		if err != nil {
			t.Fatal(err)
		}
		return b
	case "lcg":
		return lcg(r.Seed, r.N)
	}
	b := make([]byte, r.N)
	for i := range b {
		switch {
		case r.Kind == "const":
			b[i] = r.Value
		case r.Kind == "affine":
			b[i] = byte(r.A*i + r.B)
		case r.Kind == "near" && i%100 == 0:
			b[i] = 129
		case r.Kind == "near":
			b[i] = byte(127 + i%2)
		default:
			t.Fatalf("unknown kind %q", r.Kind)
		}
	}
	return b
}

func lcg(seed uint32, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		seed = 1664525*seed + 1013904223
		b[i] = byte(seed >> 24)
	}
	return b
}

func near(got float64, want *float64) bool {
	return want == nil || math.Abs(got-*want) <= 1e-12*max(1, math.Abs(*want))
}

func same(got int, want *int) bool { return want == nil || got == *want }

// compare reports what of r is not as expected.
func (e expect) compare(r amplify.Reading) error {
	switch {
	case !near(r.U, e.U):
		return fmt.Errorf("u %v, want %v", r.U, *e.U)
	case !near(r.Z, e.Z):
		return fmt.Errorf("z %v, want %v", r.Z, *e.Z)
	case !near(r.Mean, e.Mean):
		return fmt.Errorf("mean %v, want %v", r.Mean, *e.Mean)
	case !near(r.SEM, e.SEM):
		return fmt.Errorf("sem %v, want %v", r.SEM, *e.SEM)
	case !same(r.Bytes, e.Bytes), !same(r.Rank, e.Rank), !same(r.Of, e.Of):
		return fmt.Errorf("%d bytes, rank %d of %d", r.Bytes, r.Rank, r.Of)
	}
	return nil
}

func loadVectors(t *testing.T) *vectorFile {
	t.Helper()
	data, err := os.ReadFile("testdata/amplifier.json")
	if err != nil {
		t.Fatal(err)
	}
	f := new(vectorFile)
	if err := json.Unmarshal(data, f); err != nil {
		t.Fatal(err)
	}
	if len(f.Cases) != 110 || len(f.Defects) != 30 {
		t.Fatalf("%d cases and %d defects, want 110 and 30", len(f.Cases), len(f.Defects))
	}
	return f
}

func open(t *testing.T, name string, cfg amplify.Config) amplify.Amplifier {
	t.Helper()
	k, err := amplify.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	a, err := k.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestVectors(t *testing.T) {
	for i, c := range loadVectors(t).Cases {
		t.Run(fmt.Sprintf("%d/%s", i, c.Amplifier), c.run)
	}
}

func (c *vectorCase) run(t *testing.T) {
	switch {
	case c.BlocksHex != nil:
		c.runBlocks(t)
	case c.Steps != nil:
		c.runSteps(t)
	case c.Then != nil:
		c.runCalibrated(t)
	case c.Amplifier == "ecdf":
		c.runECDF(t)
	default:
		r, err := open(t, c.Amplifier, c.Params.config()).Read(c.Input.bytes(t))
		if (err != nil) != (c.ExpectError != nil) {
			t.Fatalf("error %v", err)
		}
		if err := c.Expect.compare(r); err != nil {
			t.Error(err)
		}
		if !near(r.U, c.UExact) {
			t.Errorf("u %v, want %v", r.U, *c.UExact)
		}
	}
}

// calibrate measures blocks.
func calibrate(blocks [][]byte) (*amplify.Calibration, error) {
	var means []float64
	for _, b := range blocks {
		means = append(means, float64(amplify.Sum(b))/float64(len(b)))
	}
	return amplify.Calibrate(len(blocks[0]), means)
}

func (c *vectorCase) runBlocks(t *testing.T) {
	if len(c.BlocksHex) == 0 {
		return // no calibration: the configuration stays, as in all other cases
	}
	var blocks [][]byte
	for _, h := range c.BlocksHex {
		blocks = append(blocks, (&blockRule{Kind: "hex", Hex: h}).bytes(t))
	}
	want := amplify.ErrNoVariance
	if len(blocks) == 1 {
		want = amplify.ErrTooFew
	}
	if _, err := calibrate(blocks); !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// blocks are those of the calibration.
func (c *vectorCase) blocks(t *testing.T) [][]byte {
	t.Helper()
	k := c.Calibration
	var blocks [][]byte
	for j := range max(k.Blocks, 1) {
		switch {
		case k.Kind == "lcg":
			var first uint32
			if _, err := fmt.Sscanf(k.Seed, "%d+j", &first); err != nil {
				t.Fatal(err)
			}
			blocks = append(blocks, lcg(first+uint32(j), k.N))
		case k.Kind == "hex":
			blocks = append(blocks, (&blockRule{Kind: "hex", Hex: k.Hex}).bytes(t))
		case strings.HasPrefix(k.Kind, "one byte per block"):
			for b := range byte(100) {
				blocks = append(blocks, []byte{b})
			}
		default:
			t.Fatalf("unknown kind %q", k.Kind)
		}
	}
	return blocks
}

func (c *vectorCase) runCalibrated(t *testing.T) {
	blocks := c.blocks(t)
	for j, b := range blocks {
		if s := amplify.Sum(b); s != c.ByteSums[j] {
			t.Fatalf("block %d adds up to %d, want %d", j, s, c.ByteSums[j])
		}
	}
	cal, err := calibrate(blocks)
	if err != nil {
		t.Fatal(err)
	}
	if !near(cal.Mean, &c.Calibrated.Mean) || !near(cal.Std, &c.Calibrated.Std) {
		t.Errorf("mean %v, std %v, want %+v", cal.Mean, cal.Std, c.Calibrated)
	}
	a := open(t, c.Amplifier, cal.Config())
	for i, s := range c.Then {
		r, err := a.Read(s.Input.bytes(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Expect.compare(r); err != nil {
			t.Errorf("block %d: %v", i, err)
		}
	}
}

func (c *vectorCase) runSteps(t *testing.T) {
	a, err := amplify.NewZScoreThought(c.Params.config())
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range c.Steps {
		var r amplify.Reading
		var err error
		switch s.Op {
		case "reset":
			a.Reset()
			continue
		case "aggregate":
			total := a.Total()
			if r = total.Reading; !near(total.Bias, s.Expect.Bias) {
				t.Errorf("step %d: bias %v, want %v", i, total.Bias, *s.Expect.Bias)
			}
		case "amplify":
			r, err = a.Read(s.Input.bytes(t))
		}
		if (err != nil) != (s.ExpectError != nil) {
			t.Errorf("step %d: error %v", i, err)
		}
		if err := s.Expect.compare(r); err != nil {
			t.Errorf("step %d, %s: %v", i, s.Op, err)
		}
	}
}

func (c *vectorCase) runECDF(t *testing.T) {
	k, err := amplify.Find(c.Amplifier)
	if err != nil {
		t.Fatal(err)
	}
	if c.Calibration == nil {
		if _, err := k.New(amplify.DefaultConfig()); !errors.Is(err, amplify.ErrNoCalibration) {
			t.Errorf("not calibrated: error %v", err)
		}
		return
	}
	cal, err := calibrate(c.blocks(t))
	if err != nil {
		if c.ExpectError == nil || !errors.Is(err, amplify.ErrNoVariance) {
			t.Errorf("error %v", err)
		}
		return
	}
	a, err := k.New(cal.Config())
	if err != nil {
		t.Fatal(err)
	}
	if c.Input != nil {
		if _, err := a.Read(c.Input.bytes(t)); !errors.Is(err, amplify.ErrEmpty) {
			t.Errorf("no bytes: error %v", err)
		}
		return
	}
	c.probe(t, a, cal)
}

// probe reads the probes of a case, which has ranks, or of a defect, which has the right u.
func (c *vectorCase) probe(t *testing.T, a amplify.Amplifier, cal *amplify.Calibration) {
	t.Helper()
	means := cal.Means()
	if n := len(c.Digest.First); !equal(means[:n], c.Digest.First) || !equal(means[len(means)-n:], c.Digest.Last) {
		t.Fatalf("means begin with %v and end with %v, want %+v", means[:n], means[len(means)-n:], c.Digest)
	}
	for i, p := range c.Probes {
		r, err := a.Read(p.Input.bytes(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Expect.compare(r); err != nil {
			t.Errorf("probe %d: %v", i, err)
		}
		if p.Expect.Rank != nil && (r.Rank != p.NotAbove || math.Abs(r.U-float64(p.Below+p.NotAbove+1)/float64(2*(r.Of+1))) > 1e-15) {
			t.Errorf("probe %d: rank %d, u %v, want %d means below and %d not above", i, r.Rank, r.U, p.Below, p.NotAbove)
		}
		if p.Right.U != 0 && (!near(r.U, &p.Right.U) || r.U == p.Reference.U) {
			t.Errorf("probe %d: u %v, want %v", i, r.U, p.Right.U)
		}
	}
}

func equal(a, b []float64) bool {
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-12 {
			return false
		}
	}
	return len(a) == len(b)
}

// TestDefects compares with what is right where the reference is not.
func TestDefects(t *testing.T) {
	for i, c := range loadVectors(t).Defects {
		t.Run(fmt.Sprintf("%d/%s", i, c.Amplifier), func(t *testing.T) {
			switch {
			case c.Probes != nil:
				c.runECDF(t)
			case c.Right.Error != "":
				k, err := amplify.Find(c.Amplifier)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := k.New(c.Params.config()); err == nil {
					t.Errorf("no error, want %s", c.Right.Error)
				}
			default:
				cfg := c.Params.config()
				if c.Params.Epsilon != nil { // the three about erfc, which keep the other defect
					cfg.Std = amplify.CompatStd
				}
				r, err := open(t, c.Amplifier, cfg).Read(c.Input.bytes(t))
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Right.compare(r); err != nil {
					t.Error(err)
				}
				if math.Abs(r.U/(*c.Right.U)-1) > 1e-10 {
					t.Errorf("u %v, want %v: too few digits", r.U, *c.Right.U)
				}
			}
		})
	}
}
