package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/llama/engine"
	"qr-gateway/backends/supply"
	"qr-gateway/entropy"
	"qr-gateway/entropy/hub"
	"qr-gateway/sampler"
	"qr-gateway/sampler/amplify"
	"qr-gateway/sampler/temper"
)

// lender is a Supplier and the source that it opens, as a test tells it. Draw n, from 1, is changed by change.
type lender struct {
	policy string
	opened []string
	asked  []hub.Blocks
	refuse error
	draws  int
	change func(n int, b *sampler.Block) error
	rng    *rand.ChaCha8
}

func newLender() *lender { return &lender{policy: "strict", rng: rand.NewChaCha8([32]byte{2})} }

func (l *lender) Open(ctx context.Context, name string, ask hub.Blocks) (supply.Opened, error) {
	l.opened, l.asked = append(l.opened, name), append(l.asked, ask)
	if l.refuse != nil {
		return supply.Opened{}, l.refuse
	}
	o := supply.Opened{Source: l, Name: name, Policy: l.policy}
	if ask.Count > 0 {
		means := make([]float64, ask.Count)
		for i := range means {
			means[i] = 127.5 + 0.1*float64(i-ask.Count/2)/float64(ask.Count)
		}
		var err error
		o.Calibration, err = amplify.Calibrate(ask.Bytes, means)
		return o, err
	}
	return o, ctx.Err()
}

func (l *lender) Fill(_ context.Context, buf []byte) (sampler.Block, error) {
	l.draws++
	_, _ = l.rng.Read(buf)
	b := sampler.Block{Source: "qrng", Class: "jit", Requested: time.Unix(1, 0), Arrived: time.Unix(2, 0)}
	if l.change != nil {
		return b, l.change(l.draws, &b)
	}
	return b, nil
}

// Number makes it a sampler.NumberSource.
func (l *lender) Number(context.Context, string, int) (sampler.Number, error) {
	l.draws++
	return sampler.Number{
		Block: sampler.Block{Source: "qrng"}, U: l.rngFloat(), Z: 1, Bytes: 4096, Integrator: "bit_z", CoherenceZ: 2, CoherenceR: 0.5, Coherent: true,
	}, nil
}

func (l *lender) rngFloat() float64 { return (float64(l.rng.Uint64()>>12) + 0.5) / (1 << 52) }

// lending makes a worker that draws from l.
func lending(t *testing.T, l *lender, cfg Config) *Worker {
	t.Helper()
	deps := fakeDeps(t, newFakeCache(false))
	deps.Entropy = l
	w, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, w.Run)
	return w
}

// drawing is a job whose tokens take numbers of a source called qrng.
func drawing(most int) *Job {
	job := seeded(prompt(20, 1), 0, most)
	job.Params.Seed, job.Params.EntropySource, job.Params.Temperature = nil, "qrng", 1
	job.Params.SampleCount = 256
	return job
}

func TestNumbersAreAccountedFor(t *testing.T) {
	l := newLender()
	l.policy = "fallback"
	l.change = func(n int, b *sampler.Block) error {
		if n > 3 {
			b.Source, b.Fallback, b.Discarded = "system", true, 2
		}
		if n%2 == 0 {
			b.Flags = []string{"drift", "too_fast"}
		}
		return nil
	}
	s := do(t, lending(t, l, fakeConfig(engine.MemoryAttention)), drawing(10)).Stats
	if s.Tokens != l.draws || s.FallbackTokens != l.draws-3 || s.FlaggedTokens["drift"] != l.draws/2 || s.FlaggedTokens["too_fast"] != l.draws/2 {
		t.Errorf("%d draws: %+v", l.draws, s)
	}
	if s.EntropySource != "qrng" || s.Policy != "fallback" || s.Amplifier != "zscore_mean" || s.Discarded != int64(2*(l.draws-3)) || s.EntropyBytes != int64(256*l.draws) {
		t.Errorf("got %+v", s)
	}
	if s.Strategy != "fixed" || len(s.Records) != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestStrictSourceEndsTheAnswer(t *testing.T) {
	for name, look := range map[string]func(*Job) *Job{
		"plain":     func(j *Job) *Job { return j },
		"lookahead": func(j *Job) *Job { return looking(j, "lazy", "sample", 0.3) },
	} {
		l := newLender()
		l.change = func(n int, _ *sampler.Block) error {
			if n == 5 {
				return &entropy.Error{Kind: entropy.KindTimeout, Source: "qrng", Message: "no answer in 50ms", Hint: "look at the server"}
			}
			return nil
		}
		w := lending(t, l, fakeConfig(engine.MemoryAttention))
		got, err := try(t.Context(), w, look(drawing(30)))
		e, ok := errors.AsType[*backends.Error](err)
		if !ok || e.Kind != backends.KindEntropy || e.Code != "entropy_unavailable" || len(got.tokens) != 4 {
			t.Fatalf("%s: %d tokens, %v", name, len(got.tokens), err)
		}
		for _, want := range []string{"qrng", "strict", "no answer in 50ms", "timeout", "look at the server"} {
			if !strings.Contains(e.Error(), want) {
				t.Errorf("%s: %q does not name %q", name, e.Error(), want)
			}
		}
		if got := do(t, w, look(drawing(5))); len(got.tokens) != 5 {
			t.Errorf("%s: the next request gave %v", name, got.tokens)
		}
	}
}

func TestSourcesThatCantBeOpened(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		kind backends.Kind
	}{
		"unknown": {&entropy.Error{Kind: entropy.KindConfig, Source: "qrng", Message: `no source is called "qrng"`}, backends.KindInvalid},
		"broken":  {&entropy.Error{Kind: entropy.KindTransport, Source: "qrng", Message: "not reachable"}, backends.KindEntropy},
	} {
		l := newLender()
		l.refuse = c.err
		_, err := try(t.Context(), lending(t, l, fakeConfig(engine.MemoryAttention)), drawing(5))
		e, ok := errors.AsType[*backends.Error](err)
		if !ok || e.Kind != c.kind || e.Param != "qr_entropy_source" || !strings.Contains(e.Message, "qrng") {
			t.Errorf("%s: got %#v", name, err)
		}
	}
}

func TestWhatIsOpened(t *testing.T) {
	l := newLender()
	w := lending(t, l, fakeConfig(engine.MemoryAttention))
	ecdf, calibrated, seeded, bypassed := drawing(3), drawing(3), drawing(3), drawing(3)
	ecdf.Params.Amplifier = amplify.NameECDF
	calibrated.Params.ZScoreCalibration = 100
	seeded.Params.Seed = new(int64(4))
	bypassed.Params.Bypass, bypassed.Params.ZScoreCalibration, bypassed.Params.Amplifier = true, 100, amplify.NameECDF
	for _, job := range []*Job{ecdf, calibrated, seeded, bypassed} {
		s := do(t, w, job).Stats
		if wants := job == ecdf || job == calibrated; (s.Calibration != "") != wants {
			t.Errorf("calibration is %q, want one: %v", s.Calibration, wants)
		}
	}
	if got, want := fmt.Sprint(l.opened, l.asked), "[qrng qrng system] [{2000 256} {100 256} {0 0}]"; got != want {
		t.Errorf("opened %s, want %s", got, want)
	}
}

// TestEveryStrategyAndAmplifier runs one short answer each, plain and looking ahead; statistics and records name them.
func TestEveryStrategyAndAmplifier(t *testing.T) {
	for _, kind := range temper.Kinds() {
		for _, amp := range amplify.Kinds() {
			for _, mode := range []string{"", "bounded"} {
				job := drawing(6)
				job.Params.Strategy, job.Params.Amplifier, job.Params.DiagnosticMode = kind.Name, amp.Name, true
				if mode != "" {
					job = looking(job, mode, "sample", 0.3)
				}
				got := do(t, lending(t, newLender(), fakeConfig(engine.MemoryAttention)), job)
				s := got.Stats
				if s.Strategy != kind.Name || s.Amplifier != amp.Name || len(s.Records) != s.Tokens || s.Tokens < len(got.tokens) {
					t.Errorf("%s, %s, %q: %+v", kind.Name, amp.Name, mode, s)
					continue
				}
				r := s.Records[0]
				if r.Strategy != kind.Name || r.Token != got.tokens[0] || (r.Lookahead != nil) != (mode != "") || r.Temperature <= 0 {
					t.Errorf("%s, %s, %q: record %+v", kind.Name, amp.Name, mode, r)
				}
			}
		}
	}
}

func TestPenaltiesAndBiasHaveEffect(t *testing.T) {
	w := newFakeWorker(t, newFakeCache(false), fakeConfig(engine.MemoryAttention))
	for name, look := range map[string]func(*Job) *Job{
		"plain":     func(j *Job) *Job { return j },
		"lookahead": func(j *Job) *Job { return looking(j, "lazy", "argmax", 0.1) },
	} {
		forced := look(seeded(prompt(20, 1), 5, 8))
		forced.Params.LogitBias = []sampler.TokenBias{{Token: 77, Bias: 100}}
		for _, token := range do(t, w, forced).tokens {
			if token != 77 {
				t.Errorf("%s: token %d was chosen against a bias of 100", name, token)
			}
		}
		varied := look(seeded(prompt(20, 1), 5, 8))
		varied.Params.LogitBias = []sampler.TokenBias{{Token: 77, Bias: 50}}
		varied.Params.PresencePenalty, varied.Params.FrequencyPenalty, varied.Params.RepetitionPenalty = 2, 2, 1000
		if got := do(t, w, varied).tokens; got[0] != 77 || got[1] == 77 {
			t.Errorf("%s: a penalised token came again: %v", name, got)
		}
	}
	job := seeded(prompt(20, 1), 5, 3)
	job.Params.LogitBias = []sampler.TokenBias{{Token: fakeVocab, Bias: 1}}
	_, err := try(t.Context(), w, job)
	if e, ok := errors.AsType[*backends.Error](err); !ok || e.Kind != backends.KindInvalid || e.Param != "qr_logit_bias" {
		t.Errorf("a token that is not there: %v", err)
	}
}

// TestBrokenLogitsEndOneRequest: its neighbours go on.
func TestBrokenLogitsEndOneRequest(t *testing.T) {
	sick, well := newFakeCache(false), newFakeCache(false)
	sick.spoil = func(decode int, row []float32) {
		if decode == 4 {
			row[3] = float32(math.NaN())
		}
	}
	pool := NewPool([]*Worker{newWorkerOn(t, sick), newWorkerOn(t, well)})
	runUntilEnd(t, pool.Run)
	neighbour := make(chan answered, 1)
	begun := make(chan struct{})
	go func() {
		<-begun
		got, err := try(t.Context(), pool, seeded(prompt(30, 2), 3, 50))
		if err != nil {
			t.Errorf("neighbour: %v", err)
		}
		neighbour <- got
	}()
	sick.onDecode = func(n int) error {
		if n == 2 {
			close(begun)
		}
		return nil
	}
	_, err := try(t.Context(), pool, seeded(prompt(20, 1), 3, 50))
	e, ok := errors.AsType[*backends.Error](err)
	if !ok || e.Kind != backends.KindModel || e.Code != "broken_logits" || !strings.Contains(e.Message, "NaN") {
		t.Errorf("got %v", err)
	}
	if got := <-neighbour; len(got.tokens) == 0 {
		t.Error("the neighbour has no tokens")
	}
	if got := do(t, pool, seeded(prompt(20, 1), 3, 5)); len(got.tokens) == 0 {
		t.Error("the worker serves no more")
	}
}

func newWorkerOn(t *testing.T, c Cache) *Worker {
	t.Helper()
	w, err := New(fakeConfig(engine.MemoryAttention), fakeDeps(t, c))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestNothingLeftToChoose(t *testing.T) {
	deps := fakeDeps(t, newFakeCache(false))
	all := make([]int32, fakeVocab)
	for i := range all {
		all[i] = int32(i)
	}
	deps.Language.Think = sampler.NewMask(all...)
	w, err := New(fakeConfig(engine.MemoryAttention), deps)
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, w.Run)
	for name, look := range map[string]func(*Job) *Job{
		"plain":     func(j *Job) *Job { return j },
		"lookahead": func(j *Job) *Job { return looking(j, "lazy", "sample", 0.3) },
	} {
		job := look(seeded(prompt(20, 1), 3, 5))
		job.Params.ThinkBan = new(true)
		_, err = try(t.Context(), w, job)
		if e, ok := errors.AsType[*backends.Error](err); !ok || e.Code != "no_candidates" || e.Kind != backends.KindInvalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if got := do(t, w, seeded(prompt(20, 1), 3, 5)); len(got.tokens) != 5 {
		t.Errorf("the next request gave %v", got.tokens)
	}
}

// foresight is a lender that can be asked ahead.
type foresight struct {
	*lender
	sent    []uint64
	dropped int
}

func (f *foresight) Open(ctx context.Context, name string, ask hub.Blocks) (supply.Opened, error) {
	o, err := f.lender.Open(ctx, name, ask)
	o.Source = f
	return o, err
}

func (f *foresight) Begin(_ int, nonce uint64) sampler.Ticket {
	f.sent = append(f.sent, nonce)
	return promise{f}
}

type promise struct{ from *foresight }

func (p promise) Redeem(ctx context.Context, buf []byte) (sampler.Block, error) {
	return p.from.Fill(ctx, buf)
}
func (p promise) Drop() { p.from.dropped++ }

func TestAskedAhead(t *testing.T) {
	for name, look := range map[string]func(*Job) *Job{
		"plain":     func(j *Job) *Job { return j },
		"lookahead": func(j *Job) *Job { return looking(j, "bounded", "sample", 0.3) },
	} {
		f := &foresight{lender: newLender()}
		deps := fakeDeps(t, newFakeCache(false))
		deps.Entropy = f
		w, err := New(fakeConfig(engine.MemoryAttention), deps)
		if err != nil {
			t.Fatal(err)
		}
		runUntilEnd(t, w.Run)
		job := look(drawing(8))
		job.Params.EntropyPrefetch, job.Params.DiagnosticMode = true, true
		s := do(t, w, job).Stats
		if s.Pipelined != s.Tokens || len(f.sent) != s.Tokens+1 || f.dropped != 1 {
			t.Errorf("%s: %d asked ahead, %d dropped: %+v", name, len(f.sent), f.dropped, s)
		}
		for i, r := range s.Records {
			if err := sampler.VerifyNonce(&r); err != nil || r.Nonce != fmt.Sprintf("%016x", f.sent[i]) {
				t.Errorf("%s: token %d: nonce %s, %v", name, i, r.Nonce, err)
			}
		}
	}
}

func TestLogOfTokens(t *testing.T) {
	for level, want := range map[string]string{
		sampler.LogNone:    "",
		sampler.LogSummary: "source=system [FALLBACK] fetch_ms=1000.00 total_ms=",
		sampler.LogFull:    `"entropy_source_used":"system"`,
	} {
		var out bytes.Buffer
		deps := fakeDeps(t, newFakeCache(false))
		deps.Log = slog.New(slog.NewJSONHandler(&out, nil))
		l := newLender()
		l.change = func(_ int, b *sampler.Block) error {
			b.Source, b.Fallback = "system", true
			return nil
		}
		deps.Entropy = l
		w, err := New(fakeConfig(engine.MemoryAttention), deps)
		if err != nil {
			t.Fatal(err)
		}
		runUntilEnd(t, w.Run)
		job := drawing(4)
		job.Params.LogLevel = level
		n := do(t, w, job).Stats.Tokens
		if lines := strings.Count(out.String(), "\n"); want == "" && lines != 0 || want != "" && lines != n || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %d lines for %d tokens:\n%s", level, lines, n, out.String())
		}
	}
}
