package sampler_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"qr-gateway/sampler"
	"qr-gateway/sampler/amplify"
)

// rig is a byte source with every power. Its bytes have one value; each draw carries the time of a clock of its own.
type rig struct {
	value      byte
	fallback   bool  // bytes are of a second choice
	fail       error // of the next Fill
	number     sampler.Number
	numberErr  error
	known      map[string]*amplify.Calibration
	redeemErr  error
	busy       bool // Begin gives no ticket
	calls      []string
	now        time.Time
	calibrated []string
}

func (r *rig) note(format string, args ...any) {
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *rig) block(buf []byte) sampler.Block {
	for i := range buf {
		buf[i] = r.value
	}
	r.now = r.now.Add(time.Millisecond)
	b := sampler.Block{Source: "first", Device: "dice", Requested: r.now, Arrived: r.now.Add(250 * time.Microsecond), Class: "jit", Echoed: true}
	if r.fallback {
		b.Source, b.Fallback, b.Echoed = "second", true, false
	}
	return b
}

func (r *rig) Fill(_ context.Context, buf []byte) (sampler.Block, error) {
	r.note("fill %d", len(buf))
	return r.block(buf), r.fail
}

func (r *rig) Number(_ context.Context, sourceID string, blockBytes int) (sampler.Number, error) {
	r.note("number %s %d", sourceID, blockBytes)
	return r.number, r.numberErr
}

func (r *rig) Calibration(source string) *amplify.Calibration {
	r.calibrated = append(r.calibrated, source)
	return r.known[source]
}

func (r *rig) Begin(n int, nonce uint64) sampler.Ticket {
	r.note("begin %d %016x", n, nonce)
	if r.busy {
		return nil
	}
	return rigTicket{r}
}

type rigTicket struct{ r *rig }

func (t rigTicket) Redeem(_ context.Context, buf []byte) (sampler.Block, error) {
	t.r.note("redeem %d", len(buf))
	return t.r.block(buf), t.r.redeemErr
}

func (t rigTicket) Drop() { t.r.note("drop") }

// noise makes the noise of p over r.
func noise(t *testing.T, p *sampler.Params, r *rig, cal *amplify.Calibration) sampler.Noise {
	t.Helper()
	n, err := sampler.NewNoise(p, r, cal)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// one draws a number.
func one(t *testing.T, n sampler.Noise, step int) float64 {
	t.Helper()
	u, err := n.One(context.Background(), step)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// around is a calibration of blocks of 1,000 bytes with the given mean of a byte.
func around(t *testing.T, mean float64) *amplify.Calibration {
	t.Helper()
	c, err := amplify.Calibrate(1000, []float64{mean - 2, mean - 1, mean + 1, mean + 2})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func params(set func(*sampler.Params)) *sampler.Params {
	p := sampler.Defaults()
	p.SampleCount = 1000
	if set != nil {
		set(&p)
	}
	return &p
}

// TestPopulation: what bytes are taken to be is what the request says, else what was measured, else uniform.
func TestPopulation(t *testing.T) {
	cal := around(t, 130)
	mean, std := 129.0, 50.0
	for _, c := range []struct {
		name string
		set  func(*sampler.Params)
		cal  *amplify.Calibration
		z    float64
	}{
		{"uniform", nil, nil, (130 - amplify.ByteMean) / (amplify.ByteStd / math.Sqrt(1000))},
		{"measured", nil, cal, 0},
		{"given", func(p *sampler.Params) { p.PopulationMean, p.PopulationStd = &mean, &std }, cal, 1 / (50 / math.Sqrt(1000))},
		{"half given", func(p *sampler.Params) { p.PopulationMean = &mean }, cal, 1 / (cal.Std / math.Sqrt(1000))},
	} {
		n := noise(t, params(c.set), &rig{value: 130}, c.cal)
		one(t, n, 0)
		if used := n.Last().Calibration != nil; used != (c.name == "measured" || c.name == "half given") {
			t.Errorf("%s: calibration used: %v", c.name, used)
		}
		if e := n.Last(); math.Abs(e.Z-c.z) > 1e-9 || e.Mean != 130 || e.Amplifier != "zscore_mean" || e.Bytes != 1000 || e.Source != "first" {
			t.Errorf("%s: got %+v, want z %v", c.name, e, c.z)
		}
	}
}

// TestTotal: an amplifier that adds up what it read tells it; others don't. The bytes of a second choice are not of the source.
func TestTotal(t *testing.T) {
	r := &rig{value: 130}
	n := noise(t, params(func(p *sampler.Params) { p.Amplifier = "zscore_thought" }), r, nil)
	for i := range 4 {
		one(t, n, i)
	}
	r.fallback = true
	one(t, n, 4)
	total, ok := n.(*sampler.EntropyNoise).Total()
	if want := 2.5 / (amplify.ByteStd / math.Sqrt(4000)); !ok || total.Bytes != 4000 || math.Abs(total.Z-want) > 1e-9 || total.Bias != 2.5 {
		t.Errorf("got %+v, want z %v of 4000 bytes", total, want)
	}
	if _, ok := noise(t, params(nil), r, nil).(*sampler.EntropyNoise).Total(); ok {
		t.Error("zscore_mean adds up")
	}
}

// TestSecondChoice: bytes of another source are judged by what is known of that one, which is asked once.
func TestSecondChoice(t *testing.T) {
	mean := 100.0
	short, err := amplify.Calibrate(500, []float64{138, 139, 141, 142})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		amplifier, want string
		known           *amplify.Calibration
		z               float64
	}{
		"measured":     {"zscore_mean", "zscore_mean", around(t, 140), 0},
		"not measured": {"zscore_mean", "zscore_mean", nil, (140 - amplify.ByteMean) / (amplify.ByteStd / math.Sqrt(1000))},
		"ecdf":         {"ecdf", "ecdf", around(t, 140), 0},
		"other blocks": {"ecdf", "zscore_mean", short, 0},
		"no ecdf":      {"ecdf", "zscore_mean", nil, (140 - amplify.ByteMean) / (amplify.ByteStd / math.Sqrt(1000))},
	} {
		r := &rig{value: 140, known: map[string]*amplify.Calibration{"second": c.known}}
		p := params(func(p *sampler.Params) { p.Amplifier, p.PopulationMean = c.amplifier, &mean })
		n := noise(t, p, r, around(t, 100))
		for i, fallback := range []bool{false, true, true, false} {
			r.fallback = fallback
			one(t, n, i)
			e := n.Last()
			if e.Fallback != fallback {
				t.Errorf("%s, draw %d: fallback %v", name, i, e.Fallback)
			}
			if fallback && (e.Amplifier != c.want || math.Abs(e.Z-c.z) > 1e-9 || e.Calibration != c.known) {
				t.Errorf("%s: got %+v, want z %v of %s", name, e, c.z, c.want)
			}
		}
		if !slices.Equal(r.calibrated, []string{"second"}) {
			t.Errorf("%s: calibrations of %v were asked for", name, r.calibrated)
		}
	}
}

// TestServerNumbers: the server's number is used as it is, no byte is asked for, and what it says is kept.
func TestServerNumbers(t *testing.T) {
	r := &rig{number: sampler.Number{
		Block: sampler.Block{Source: "first", Class: "jit"}, U: 0.25, Z: -0.67, SourceID: "dragonfly", Bytes: 102400, Integrator: "bit_z",
		Purity: "label", CoherenceZ: 4, CoherenceR: 0.8, Coherent: true,
	}}
	p := params(func(p *sampler.Params) { p.Amplifier, p.DrawSourceID, p.DrawBlockBytes = "server", "dragonfly", 102400 })
	n := noise(t, p, r, nil)
	if u := one(t, n, 0); u != 0.25 || !slices.Equal(r.calls, []string{"number dragonfly 102400"}) {
		t.Errorf("u %v, calls %v", u, r.calls)
	}
	if e := n.Last(); e.Number == nil || e.Number.Integrator != "bit_z" || e.U != 0.25 || e.Z != -0.67 || e.Amplifier != "server" || e.Fallback {
		t.Errorf("evidence %+v", e)
	}
	if source, u, bytes := n.Info(); source != "first" || u != "server" || bytes != 102400 {
		t.Errorf("info: %s, %s, %d", source, u, bytes)
	}
	err := n.Each(context.Background(), 1, []int32{1}, []float64{0})
	if e, ok := errors.AsType[*sampler.ParamError](err); !ok || e.Key != "qr_amplifier" {
		t.Errorf("numbers per candidate: error %v", err)
	}
	for _, u := range []float64{0, 1, -1, math.NaN()} {
		r.number.U = u
		if _, err := n.One(context.Background(), 1); err == nil {
			t.Errorf("a server's number of %v: no error", u)
		}
	}
}

// TestGateClosesOnSecondChoice: a number that the source made of other bytes, because its server gave none, is no evidence of coherence.
func TestGateClosesOnSecondChoice(t *testing.T) {
	coherent := sampler.Number{U: 0.25, CoherenceZ: 4, CoherenceR: 0.8, Coherent: true}
	other := sampler.Number{Block: sampler.Block{Fallback: true}, U: 0.25, Integrator: "zscore_mean"}
	p := params(func(p *sampler.Params) { p.Amplifier, p.Strategy = "server", "coherence_gate" })
	r, row := &rig{}, []float32{2, 1, 0}
	n, s := noise(t, p, r, nil), begin(t, len(row), p)
	for i, c := range []struct {
		number sampler.Number
		want   float64 // temperature, by the draws before
	}{{coherent, 1}, {coherent, 1.12}, {other, 1.204}, {coherent, 1}, {coherent, 1.12}} {
		r.number = c.number
		if _, err := s.Next(context.Background(), row, nil, n); err != nil {
			t.Fatal(err)
		}
		if got := s.Record(); math.Abs(got.Temperature-c.want) > 1e-9 || c.number.Fallback && got.Amplifier != "zscore_mean" {
			t.Errorf("token %d: temperature %v by %s, want %v", i, got.Temperature, got.Amplifier, c.want)
		}
	}
}

// TestServerThatFails follows the source's policy: an error goes up, unless bytes are to take the number's place. Those are marked.
func TestServerThatFails(t *testing.T) {
	down := errors.New("server is down")
	r := &rig{value: 128, numberErr: down, known: map[string]*amplify.Calibration{"second": around(t, 128)}}
	n := noise(t, params(func(p *sampler.Params) { p.Amplifier = "server" }), r, around(t, 100))
	if _, err := n.One(context.Background(), 0); !errors.Is(err, down) || n.Last() != nil {
		t.Errorf("strict: error %v, evidence %v", err, n.Last())
	}
	r.numberErr = fmt.Errorf("%w: %w", sampler.ErrNoNumber, down)
	r.fallback = true
	u := one(t, n, 0)
	if e := n.Last(); u != 0.5 || !e.Fallback || e.Number != nil || e.Amplifier != "zscore_mean" || e.Source != "second" || e.Mean != 128 {
		t.Errorf("bytes of the second choice: u %v, evidence %+v", u, e)
	}
	r.fallback = false
	one(t, n, 1)
	if e := n.Last(); !e.Fallback || e.Source != "first" || math.Abs(e.Z) < 5 {
		t.Errorf("bytes of the first choice, which was measured to be elsewhere: evidence %+v", e)
	}
}

// TestNewNoiseRefuses what could only fail in the middle of an answer.
func TestNewNoiseRefuses(t *testing.T) {
	half := 0.5
	for name, c := range map[string]struct {
		set func(*sampler.Params)
		src sampler.ByteSource
		say string
	}{
		"no server":            {func(p *sampler.Params) { p.Amplifier = "server" }, &counter{}, "server"},
		"unknown":              {func(p *sampler.Params) { p.Amplifier = "loud" }, &counter{}, "loud"},
		"no source":            {nil, nil, "source"},
		"ecdf of nothing":      {func(p *sampler.Params) { p.Amplifier = "ecdf" }, &counter{}, "calibration"},
		"a number a candidate": {func(p *sampler.Params) { p.Amplifier, p.Alpha = "server", &half }, &rig{}, "qr_lookahead"},
	} {
		if _, err := sampler.NewNoise(params(c.set), c.src, nil); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: error %v, want one about %s", name, err, c.say)
		}
	}
	p := params(func(p *sampler.Params) { p.Amplifier, p.Alpha, p.Lookahead = "server", &half, sampler.ModeBounded })
	if _, err := sampler.NewNoise(p, &rig{}, nil); err != nil {
		t.Errorf("bounded takes one number a token: %v", err)
	}
	seed := int64(4)
	n, err := sampler.NewNoise(params(func(p *sampler.Params) { p.Seed = &seed }), nil, nil)
	if err != nil || n.Last().Source != "seed" {
		t.Errorf("a seed needs no source: error %v", err)
	}
}

func TestNoiseAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, amplifier := range []string{"zscore_mean", "zscore_thought", "ecdf"} {
		n, err := sampler.NewNoise(params(func(p *sampler.Params) { p.Amplifier = amplifier }), quietSource{}, around(t, 127))
		if err != nil {
			t.Fatal(err)
		}
		step := 0
		if got := testing.AllocsPerRun(100, func() { one(t, n, step); step++ }); got != 0 {
			t.Errorf("%s: %v allocations a number", amplifier, got)
		}
	}
}

// quietSource allocates nothing.
type quietSource struct{}

func (quietSource) Fill(_ context.Context, buf []byte) (sampler.Block, error) {
	for i := range buf {
		buf[i] = byte(i)
	}
	return sampler.Block{Source: "quiet"}, nil
}
