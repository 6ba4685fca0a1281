package sampler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// Validate checks every field against the table, and fields against each other. The error is a *[ParamError].
func (p *Params) Validate() error {
	var probe Params // takes the values, so that p is only read
	for i := range table {
		r := &table[i]
		if err := r.assign(&probe, r.Key, r.value(p)); err != nil {
			return err
		}
	}
	if p.Seed == nil && p.UsesLookahead() && p.SampleCount <= p.LookaheadK {
		return &ParamError{Key: "qr_sample_count", Value: show(p.SampleCount), Reason: fmt.Sprintf(
			"qr_sample_count is %d, but %d candidates (qr_lookahead_k) and the end of the text need a byte each; raise it to %d or more",
			p.SampleCount, p.LookaheadK, p.LookaheadK+1)}
	}
	return nil
}

// value reads the field in a form that assign takes.
func (r *row) value(p *Params) any {
	switch at := r.at(p).(type) {
	case *string:
		return *at
	case *float64:
		return *at
	case *int:
		return *at
	case **float64:
		if *at != nil {
			return **at
		}
	case **int64:
		if *at != nil {
			return **at
		}
	case **bool:
		if *at != nil {
			return **at
		}
	}
	return nil
}

// ParseParams reads what encoding/json wrote of a Params. Absent fields have their defaults; unknown fields, values out of range and
// anything after the object are errors.
func ParseParams(data []byte) (Params, error) {
	p := Defaults()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return Params{}, fmt.Errorf("parse parameters: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Params{}, errors.New("parse parameters: text follows the object")
	}
	if err := p.Validate(); err != nil {
		return Params{}, fmt.Errorf("parse parameters: %w", err)
	}
	return p, nil
}

// UsesLookahead tells which decoder p asks for.
func (p *Params) UsesLookahead() bool {
	switch p.Decoder {
	case DecoderLookahead:
		return true
	case DecoderPlain:
		return false
	}
	return p.Alpha != nil || p.WavePeriod > 0
}

// AlphaAt is alpha for the token with index t within the answer: the wave offset + amplitude sin(2 pi t / period), kept within [-1,1], where
// one is set, else the fixed alpha, else 0.
func (p *Params) AlphaAt(t int) float64 {
	if p.WavePeriod > 0 {
		a := p.WaveOffset + p.WaveAmplitude*math.Sin(2*math.Pi*float64(t)/p.WavePeriod)
		return min(max(a, -1), 1)
	}
	if p.Alpha != nil {
		return *p.Alpha
	}
	return 0
}
