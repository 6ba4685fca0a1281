package jsonlines

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"qr-gateway/sampler"
	"qr-gateway/sampler/amplify"
)

// sourceName is what records call the bytes of a line.
const sourceName = "line"

// session is one answer.
type session struct {
	stream *sampler.Stream
	params *sampler.Params
	given  map[string]any // parameters as the first line gave them
	prompt []int32
	vocab  int
	failed int // line that ended the stream, of which nothing else is kept then; 0: none
}

func newSession(p sampler.Params, presets sampler.Presets, line *Line) (*session, error) {
	if err := line.set(&p, presets); err != nil {
		return nil, err
	}
	s := &session{params: &p, given: maps.Clone(line.Params), prompt: slices.Clone(line.Prompt), vocab: len(line.Logits)}
	s.stream = sampler.NewStream(s.vocab)
	s.stream.Observe(true)
	if err := s.stream.Begin(s.params, line.Prompt); err != nil {
		return nil, err
	}
	for i, step := range line.History {
		if err := s.repeat(step); err != nil {
			return nil, fmt.Errorf("history[%d]: %w", i, err)
		}
	}
	return s, nil
}

// same refuses a line that would change what its stream began with.
func (s *session) same(line *Line) error {
	switch {
	case s.failed > 0:
		return fmt.Errorf("stream %q ended with the error of line %d; begin another", line.Stream, s.failed)
	case line.Params != nil && !reflect.DeepEqual(line.Params, s.given):
		return fmt.Errorf("params of stream %q differ from those of its first line; leave them out, or begin another stream", line.Stream)
	case line.Prompt != nil && !slices.Equal(line.Prompt, s.prompt):
		return fmt.Errorf("prompt of stream %q differs from that of its first line; leave it out, or begin another stream", line.Stream)
	}
	return nil
}

// repeat takes in a token of the past.
func (s *session) repeat(step Step) error {
	if _, err := s.stream.Plan64(step.Logits, nil); err != nil {
		return err
	}
	if step.Token < 0 || int(step.Token) >= s.vocab {
		return fmt.Errorf("token is %d; the vocabulary has 0 to %d", step.Token, s.vocab-1)
	}
	var ev *sampler.Evidence
	if step.Number != nil {
		ev = &sampler.Evidence{Number: step.Number.sampler()}
	}
	s.stream.Accept(step.Token, ev)
	return nil
}

// next chooses the token of a line.
func (s *session) next(line *Line) (*Result, error) {
	plan, err := s.stream.Plan64(line.Logits, sampler.NewMask(line.Banned...))
	if err != nil {
		return nil, err
	}
	u, ev := 0.0, (*sampler.Evidence)(nil)
	if s.stream.NeedsU() {
		if u, ev, err = s.number(line); err != nil {
			return nil, err
		}
	}
	draw, err := s.stream.Choose(u)
	if err != nil {
		return nil, err
	}
	s.stream.Accept(draw.Token, ev)
	return newResult(plan, draw, s.stream.Record(), s.stream.NeedsU()), nil
}

// number is the number of a line and what it was made of.
func (s *session) number(line *Line) (float64, *sampler.Evidence, error) {
	if line.U != nil {
		return *line.U, nil, nil
	}
	noise, err := s.noise(line)
	if err != nil {
		return 0, nil, err
	}
	u, err := noise.One(context.Background(), s.stream.Step())
	return u, noise.Last(), err
}

// noise makes the number of what the line holds, or of the seed.
func (s *session) noise(line *Line) (sampler.Noise, error) {
	p := *s.params
	switch {
	case line.Bytes != nil:
		p.Seed, p.SampleCount = nil, len(*line.Bytes)
	case line.Number != nil:
		p.Seed = nil
	case p.Seed == nil:
		return nil, errors.New("there is nothing to make a number of; give bytes, u, number or the parameter qr_seed")
	}
	cal, err := line.Calibration.sampler()
	if err != nil {
		return nil, err
	}
	return sampler.NewNoise(&p, source{line}, cal)
}

func (c *Calibration) sampler() (*amplify.Calibration, error) {
	if c == nil {
		return nil, nil
	}
	return amplify.Calibrate(c.BlockBytes, c.Means)
}

func (n *Number) sampler() *sampler.Number {
	return &sampler.Number{
		Block: sampler.Block{Source: sourceName}, U: n.U, Z: n.Z,
		CoherenceZ: n.CoherenceZ, CoherenceR: n.CoherenceR, Coherent: n.CoherenceValid,
	}
}

// source hands out what a line holds.
type source struct{ line *Line }

// Fill implements sampler.ByteSource.
func (s source) Fill(_ context.Context, buf []byte) (sampler.Block, error) {
	if s.line.Bytes == nil || len(*s.line.Bytes) != len(buf) {
		return sampler.Block{}, fmt.Errorf("the line has no %d bytes", len(buf))
	}
	copy(buf, *s.line.Bytes)
	return sampler.Block{Source: sourceName}, nil
}

// Number implements sampler.NumberSource.
func (s source) Number(context.Context, string, int) (sampler.Number, error) {
	if s.line.Number == nil {
		return sampler.Number{}, errors.New("qr_amplifier is server, but the line has no number; give it, with its u")
	}
	return *s.line.Number.sampler(), nil
}
