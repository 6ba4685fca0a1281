package sampler

import (
	"context"
	"fmt"
	"math"

	"qr-gateway/sampler/amplify"
)

// EntropyConfig says how bytes become numbers.
type EntropyConfig struct {
	Source    string // name of the byte source, for records until the first block names its own
	Amplifier string // name of the amplifier, for records
	Bytes     int    // of one draw, at least 1
	// PerToken says that the amplifier makes one number per token only: Each is an error.
	PerToken bool
	// Calibration is what the amplifier takes the bytes to be, for records; nil: nothing measured.
	Calibration *amplify.Calibration
	// Salt, not nil, opts in to asking a source that is an [AheadSource] for the bytes of the next token as soon as one is accepted. It
	// should be random, one for each request.
	Salt *[SaltSize]byte
}

// EntropyNoise takes every number from a byte source at the moment it is asked for: one draw for One, and one draw cut into equal
// blocks for Each. It belongs to one goroutine.
type EntropyNoise struct {
	cfg    EntropyConfig
	src    ByteSource
	amp    amplify.Amplifier
	second *secondChoice // nil: amp serves for whatever source the bytes come from
	ahead  ahead
	buf    []byte
	taken  int64
	ev     Evidence
	drew   bool
}

// NewEntropyNoise returns noise that draws cfg.Bytes from src for every call and amplifies them with amp. [NewNoise] makes one as the
// parameters of a request ask for it.
func NewEntropyNoise(cfg EntropyConfig, src ByteSource, amp amplify.Amplifier) *EntropyNoise {
	e := &EntropyNoise{cfg: cfg, src: src, amp: amp, buf: make([]byte, max(cfg.Bytes, 0))}
	if s, ok := src.(AheadSource); ok && cfg.Salt != nil {
		e.ahead = ahead{src: s, salt: *cfg.Salt}
	}
	return e
}

// One implements [Noise].
func (e *EntropyNoise) One(ctx context.Context, step int) (float64, error) {
	if err := e.draw(ctx, step); err != nil {
		return 0, err
	}
	amp, err := e.amplifier()
	if err != nil {
		return 0, err
	}
	e.ev.Reading, err = e.read(amp, e.buf)
	return e.ev.U, err
}

// Each implements [Noise]. Block i, in the order of tokens, becomes u[i]; what is left over after the last whole block is not used.
func (e *EntropyNoise) Each(ctx context.Context, step int, tokens []int32, u []float64) error {
	if len(tokens) == 0 {
		return nil
	}
	if e.cfg.PerToken {
		return onePerToken(e.cfg.Amplifier)
	}
	size := len(e.buf) / len(tokens)
	if size == 0 {
		return fmt.Errorf("draw numbers: %d bytes (qr_sample_count) are too few for %d candidates", len(e.buf), len(tokens))
	}
	if err := e.draw(ctx, step); err != nil {
		return err
	}
	amp, err := e.amplifier()
	if err != nil {
		return err
	}
	e.ev.Tokens = append(e.ev.Tokens, tokens...)
	for i := range tokens {
		r, err := e.read(amp, e.buf[i*size:(i+1)*size])
		if err != nil {
			return err
		}
		u[i] = r.U
		e.ev.Readings = append(e.ev.Readings, r)
	}
	return nil
}

// onePerToken refuses to make more than one number.
func onePerToken(amplifier string) error {
	return &ParamError{Key: "qr_amplifier", Reason: fmt.Sprintf(
		"qr_amplifier is %s, which makes one number per token, but the lookahead needs one per candidate; set qr_lookahead to bounded or full_inverse",
		amplifier)}
}

// Info implements [Noise].
func (e *EntropyNoise) Info() (source, uSource string, bytes int64) {
	if e.drew {
		return e.ev.Source, e.ev.Amplifier, e.taken
	}
	return e.cfg.Source, e.cfg.Amplifier, e.taken
}

// Last implements [Noise].
func (e *EntropyNoise) Last() *Evidence {
	if !e.drew {
		return nil
	}
	return &e.ev
}

// Total is the reading of all bytes so far as if they were one block. ok is false for an amplifier that doesn't add them up: of those here,
// [amplify.ZScoreThought] does. Bytes of a second choice are not in it.
func (e *EntropyNoise) Total() (total amplify.Total, ok bool) {
	t, ok := e.amp.(interface{ Total() amplify.Total })
	if !ok {
		return amplify.Total{}, false
	}
	return t.Total(), true
}

// draw fills buf and starts the evidence anew.
func (e *EntropyNoise) draw(ctx context.Context, step int) error {
	block, asked, err := e.fetch(ctx, step)
	if err != nil {
		return fmt.Errorf("draw %d bytes from %s: %w", len(e.buf), e.cfg.Source, err)
	}
	e.drew = true
	e.taken += int64(len(e.buf))
	e.ev = Evidence{
		Block: block, Reading: noReading(), Bytes: len(e.buf), Amplifier: e.cfg.Amplifier, Calibration: e.cfg.Calibration,
		Asked: asked, Tokens: e.ev.Tokens[:0], Readings: e.ev.Readings[:0], block: e.buf,
	}
	return nil
}

// fetch takes the bytes that were asked for ahead, or else asks now.
func (e *EntropyNoise) fetch(ctx context.Context, step int) (Block, *Asked, error) {
	block, ok := e.ahead.redeem(ctx, step, e.buf)
	asked := e.ahead.sentFor(step)
	if ok {
		return block, asked, nil
	}
	if err := ctx.Err(); err != nil {
		return Block{}, asked, err
	}
	block, err := e.src.Fill(ctx, e.buf)
	return block, asked, err
}

// amplifier is the one for the bytes at hand.
func (e *EntropyNoise) amplifier() (amplify.Amplifier, error) {
	if !e.ev.Fallback || e.second == nil {
		return e.amp, nil
	}
	c, err := e.second.choose(e.ev.Source)
	if err != nil {
		return nil, err
	}
	e.ev.Amplifier, e.ev.Calibration = c.name, c.calibration
	return c.amp, nil
}

func (e *EntropyNoise) read(amp amplify.Amplifier, block []byte) (amplify.Reading, error) {
	r, err := amp.Read(block)
	if err != nil {
		return r, fmt.Errorf("amplify %d bytes: %w", len(block), err)
	}
	return r, inside(r.U, e.ev.Amplifier)
}

// inside refuses a number that no choice can be made by.
func inside(u float64, from string) error {
	if !(u > 0 && u < 1) {
		return fmt.Errorf("make number: %s gave %v, which is not between 0 and 1", from, u)
	}
	return nil
}

// Accepted implements [Pipelined].
func (e *EntropyNoise) Accepted(step int, token int32) { e.ahead.begin(len(e.buf), step+1, token) }

// End implements [Pipelined].
func (e *EntropyNoise) End() { e.ahead.drop() }

// ahead is the request that is on its way, if any.
type ahead struct {
	src    AheadSource // nil: never ask ahead
	salt   [SaltSize]byte
	ticket Ticket
	asked  Asked // the latest
	sent   bool  // asked was sent for its step
	told   Asked // the one that the evidence is about
}

// begin asks for the bytes of step.
func (a *ahead) begin(n, step int, previous int32) {
	if a.src == nil {
		return
	}
	a.drop()
	a.asked = Asked{Salt: a.salt, Step: step, Previous: previous, Nonce: Nonce(a.salt[:], uint64(step), int64(previous))}
	a.ticket = a.src.Begin(n, a.asked.Nonce)
	a.sent = a.ticket != nil
}

// redeem waits for the bytes of step. It is not ok where none were asked for, or they didn't come.
func (a *ahead) redeem(ctx context.Context, step int, buf []byte) (Block, bool) {
	if a.ticket == nil {
		return Block{}, false
	}
	if a.asked.Step != step {
		a.drop()
		return Block{}, false
	}
	block, err := a.ticket.Redeem(ctx, buf)
	a.ticket = nil
	a.asked.Hit = err == nil
	return block, err == nil
}

// sentFor is the request that was sent for step, or nil. It is not touched by the next one, which is on its way before the record is read.
func (a *ahead) sentFor(step int) *Asked {
	if !a.sent || a.asked.Step != step {
		return nil
	}
	a.told = a.asked
	return &a.told
}

func (a *ahead) drop() {
	if a.ticket != nil {
		a.ticket.Drop()
	}
	a.ticket, a.sent = nil, false
}

// secondChoice makes amplifiers for the sources behind the first.
type secondChoice struct {
	kind    amplify.Kind
	epsilon float64
	bytes   int // of a block
	src     ByteSource
	known   []calibratedAmp // few: one for each source that ever served
}

type calibratedAmp struct {
	source      string
	name        string // of the amplifier
	calibration *amplify.Calibration
	amp         amplify.Amplifier
}

// choose is the amplifier for bytes of source: of the kind that the request asked for, with what was measured of that very source. Where
// that can't be, because the kind needs a measurement that wasn't made, it is the z-score of uniform bytes.
func (s *secondChoice) choose(source string) (*calibratedAmp, error) {
	for i := range s.known {
		if s.known[i].source == source {
			return &s.known[i], nil
		}
	}
	c := calibratedAmp{source: source, name: s.kind.Name}
	if cal, ok := s.src.(Calibrated); ok {
		c.calibration = cal.Calibration(source)
	}
	cfg := amplifierConfig(s.epsilon, c.calibration)
	cfg.BlockBytes = s.bytes
	var err error
	if c.amp, err = s.kind.New(cfg); err != nil {
		c.name = amplify.Name
		if c.amp, err = zScore(cfg); err != nil {
			return nil, fmt.Errorf("make amplifier for %s: %w", source, err)
		}
	}
	s.known = append(s.known, c)
	return &s.known[len(s.known)-1], nil
}

// amplifierConfig describes bytes as measured, or as uniform.
func amplifierConfig(epsilon float64, cal *amplify.Calibration) amplify.Config {
	cfg := amplify.Config{Mean: amplify.ByteMean, Std: amplify.ByteStd, Epsilon: epsilon, Calibration: cal}
	if cal != nil && cal.Std > 0 && !math.IsNaN(cal.Mean) {
		cfg.Mean, cfg.Std = cal.Mean, cal.Std
	}
	return cfg
}

// zScore is the amplifier that needs nothing measured.
func zScore(cfg amplify.Config) (amplify.Amplifier, error) {
	kind, err := amplify.Find(amplify.Name)
	if err != nil {
		return nil, err
	}
	return kind.New(cfg)
}
