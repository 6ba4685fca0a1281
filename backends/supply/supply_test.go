package supply

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
	"qr-gateway/entropy/hub"
	"qr-gateway/entropy/local"
	"qr-gateway/sampler"
	"qr-gateway/sampler/amplify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// provider lends sources under their names.
type provider struct {
	sources map[string]entropy.Source
	policy  string
	frozen  map[string]*guard.Calibration
	made    hub.Baselines
}

func (p *provider) Source(name string) (entropy.Source, bool) {
	s, ok := p.sources[name]
	return s, ok
}

func (p *provider) Describe(ctx context.Context, name string, ask hub.Blocks) (hub.Description, error) {
	d := hub.Description{Type: "test", Policy: p.policy, Calibration: p.frozen[name]}
	_, d.Can.Number = p.sources[name].(entropy.Numberer)
	if ask.Count == 0 {
		return d, nil
	}
	var err error
	d.Calibration, err = p.made.Of(ctx, name, p.sources[name], ask)
	return d, err
}

// lend serves p and returns the supply of a process that reaches it.
func lend(t *testing.T, p *provider) *Supply {
	t.Helper()
	dir, err := os.MkdirTemp("", "supply-") //nolint:usetesting // its paths have the test's name in them, and are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	log := slog.New(slog.DiscardHandler)
	server, err := hub.New(t.Context(), hub.Config{Dir: dir}, hub.Deps{Sources: p, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	run(t, server.Run)
	cfg := hub.DefaultClientConfig()
	cfg.Socket = server.Path()
	client, err := hub.NewClient(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	run(t, client.Run)
	return New(client)
}

func run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// told is a source that answers as a test tells it.
type told struct {
	block  entropy.Block
	number func() (entropy.Number, error)
}

func (s *told) Draw(_ context.Context, buf []byte) (entropy.Block, error) {
	b := s.block
	b.Bytes = buf
	return b, nil
}

func (s *told) Number(context.Context, entropy.NumberRequest) (entropy.Number, error) {
	return s.number()
}

func (s *told) Begin(n int, nonce uint64) entropy.Ticket { return pass{s, n, nonce} }

type pass struct {
	from  *told
	n     int
	nonce uint64
}

func (p pass) Redeem(ctx context.Context, buf []byte) (entropy.Block, error) {
	b, err := p.from.Draw(ctx, buf)
	b.Sequence = p.nonce
	return b, err
}
func (p pass) Drop() {}

func TestSystemNeedsNoHub(t *testing.T) {
	s := New(nil)
	for _, name := range []string{"", "system"} {
		o, err := s.Open(t.Context(), name, hub.Blocks{Count: 50, Bytes: 1000})
		if err != nil || o.Name != "system" || o.Policy != "strict" || o.Calibration.Blocks != 50 || o.Calibration.BlockBytes != 1000 {
			t.Fatalf("%q: %+v, %v", name, o, err)
		}
		again, err := s.Open(t.Context(), name, hub.Blocks{Count: 50, Bytes: 1000})
		if err != nil || again.Calibration.Hash() != o.Calibration.Hash() {
			t.Errorf("%q was measured twice, %v", name, err)
		}
		if b, err := o.Source.Fill(t.Context(), make([]byte, 10)); err != nil || b.Source != "system" || b.Class != "pool" {
			t.Errorf("%q: %+v, %v", name, b, err)
		}
	}
	if _, err := s.Open(t.Context(), "qrng", hub.Blocks{}); entropy.KindOf(err) != entropy.KindConfig {
		t.Errorf("a source of nobody's: %v", err)
	}
}

func TestBlocksAndFlags(t *testing.T) {
	at := time.Unix(0, 1700000000000000001)
	s := lend(t, &provider{policy: "observe", sources: map[string]entropy.Source{"q": &told{block: entropy.Block{
		Source: "second", Device: "d", Requested: at, Arrived: at.Add(1), ServerTime: at.Add(2), Sequence: 4, Echoed: true,
		Class: entropy.ClassJIT, Shots: 2, Fallback: true, Flags: entropy.FlagRepetition | entropy.FlagDrift, Discarded: 1,
	}}}})
	o, err := s.Open(t.Context(), "q", hub.Blocks{})
	if err != nil || o.Policy != "observe" || o.Name != "q" || o.Calibration != nil {
		t.Fatalf("%+v, %v", o, err)
	}
	want := sampler.Block{
		Source: "second", Device: "d", Requested: at, Arrived: at.Add(1), ServerTime: at.Add(2), Sequence: 4, Echoed: true, Class: "jit",
		Shots: 2, Fallback: true, Flags: []string{"repetition", "drift"}, Discarded: 1,
	}
	got, err := o.Source.Fill(t.Context(), make([]byte, 8))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	want.Sequence = 77
	ticket := o.Source.(sampler.AheadSource).Begin(8, 77)
	got, err = ticket.Redeem(t.Context(), make([]byte, 8))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("asked ahead: %v\n%s", err, diff)
	}
}

func TestPowersAreThoseOfTheSource(t *testing.T) {
	s := lend(t, &provider{policy: "strict", sources: map[string]entropy.Source{
		"plain": struct{ entropy.Source }{local.NewSystem()}, "able": &told{},
	}})
	for name, can := range map[string]bool{"plain": false, "able": true} {
		o, err := s.Open(t.Context(), name, hub.Blocks{})
		if err != nil {
			t.Fatal(err)
		}
		_, numbers := o.Source.(sampler.NumberSource)
		_, ahead := o.Source.(sampler.AheadSource)
		if numbers != can || ahead != can {
			t.Errorf("%s: numbers %v, ahead %v", name, numbers, ahead)
		}
	}
}

func TestNumbers(t *testing.T) {
	src := &told{}
	for policy, standIn := range map[string]bool{string(guard.Strict): false, string(guard.Fallback): true} {
		s := lend(t, &provider{policy: policy, sources: map[string]entropy.Source{"q": src}})
		o, err := s.Open(t.Context(), "q", hub.Blocks{})
		if err != nil {
			t.Fatal(err)
		}
		from := o.Source.(sampler.NumberSource)
		src.number = func() (entropy.Number, error) {
			return entropy.Number{U: 0.25, Z: -0.6, Bytes: 9, Integrator: "bit_z", Coherent: true, CoherenceZ: 3}, nil
		}
		if n, err := from.Number(t.Context(), "a", 0); err != nil || n.U != 0.25 || n.Integrator != "bit_z" || n.CoherenceZ != 3 || !n.Coherent {
			t.Errorf("%s: %+v, %v", policy, n, err)
		}
		src.number = func() (entropy.Number, error) {
			return entropy.Number{}, &entropy.Error{Kind: entropy.KindRefused, Source: "q", Message: "no such service"}
		}
		if _, err := from.Number(t.Context(), "a", 0); errors.Is(err, sampler.ErrNoNumber) != standIn || entropy.KindOf(err) != entropy.KindRefused {
			t.Errorf("%s: refused: %v", policy, err)
		}
		src.number = func() (entropy.Number, error) {
			return entropy.Number{}, &entropy.Error{Kind: entropy.KindTimeout, Source: "q", Message: "late"}
		}
		if _, err := from.Number(t.Context(), "a", 0); errors.Is(err, sampler.ErrNoNumber) || entropy.KindOf(err) != entropy.KindTimeout {
			t.Errorf("%s: late: %v", policy, err)
		}
	}
}

func TestCalibrationIsTheSourcesOwn(t *testing.T) {
	mock := struct{ entropy.Source }{local.NewSystem()}
	s := lend(t, &provider{policy: "strict", sources: map[string]entropy.Source{"q": mock}})
	o, err := s.Open(t.Context(), "q", hub.Blocks{Count: 200, Bytes: 500})
	if err != nil || o.Calibration.Blocks != 200 || o.Calibration.Mean < 120 || o.Calibration.Mean > 135 {
		t.Fatalf("%+v, %v", o.Calibration, err)
	}
	if _, err := s.Open(t.Context(), "q", hub.Blocks{Count: 1, Bytes: 500}); entropy.KindOf(err) != entropy.KindConfig {
		t.Errorf("too few blocks: %v", err)
	}
	if _, err := s.Open(t.Context(), "none", hub.Blocks{}); entropy.KindOf(err) != entropy.KindConfig {
		t.Errorf("unknown: %v", err)
	}
}

// Bytes of a second choice are taken to be what was measured of that very source.
func TestCalibrationOfASecondChoice(t *testing.T) {
	sums := make([]uint64, 64)
	for i := range sums {
		sums[i] = uint64(180*1000 + i%5*100)
	}
	raw, err := guard.NewCalibration("raw", "", time.Unix(1, 0), 1000, sums)
	if err != nil {
		t.Fatal(err)
	}
	first := &told{block: entropy.Block{Source: "raw", Fallback: true}}
	s := lend(t, &provider{
		policy: "fallback", frozen: map[string]*guard.Calibration{"raw": raw},
		sources: map[string]entropy.Source{"q": first, "raw": local.NewSystem()},
	})
	o, err := s.Open(t.Context(), "q", hub.Blocks{})
	if err != nil || o.Calibration != nil {
		t.Fatalf("%+v, %v", o, err)
	}
	fill := func() *amplify.Calibration {
		if _, err := o.Source.Fill(t.Context(), make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		return o.Source.(sampler.Calibrated).Calibration(first.block.Source)
	}
	if c := fill(); c == nil || c.Mean < 179 || c.Mean > 181 {
		t.Errorf("a calibrated one: %+v", c)
	}
	if _, err := o.Source.(sampler.AheadSource).Begin(8, 3).Redeem(t.Context(), make([]byte, 8)); err != nil {
		t.Error(err)
	}
	first.block.Source = "system"
	if c := fill(); c != nil {
		t.Errorf("one that is not: %+v", c)
	}
}

func TestWhatParametersNeed(t *testing.T) {
	for name, c := range map[string]struct {
		amplifier string
		blocks    int
		want      hub.Blocks
	}{
		"z-score":            {amplify.Name, 0, hub.Blocks{}},
		"z-score, measured":  {amplify.Name, 64, hub.Blocks{Count: 64, Bytes: 20480}},
		"ecdf":               {amplify.NameECDF, 0, hub.Blocks{Count: 2000, Bytes: 20480}},
		"made by the server": {amplify.NameServer, 64, hub.Blocks{}},
	} {
		p := sampler.Defaults()
		p.Amplifier, p.ZScoreCalibration = c.amplifier, c.blocks
		if got := Calibration(&p); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
