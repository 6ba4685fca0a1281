package sampler

import (
	"math"

	"qr-gateway/sampler/param"
)

// maxMore is how many parameters may be declared beside the strategies and amplifiers that read them. The table's test says when it is
// too few.
const maxMore = 96

// Params are the values that decide how tokens are chosen. Every field has one row in the table (see [Fields]) and is named by its key in
// JSON; the parameters that strategies and amplifiers declare have a row and no Go name, see [Params.Number]. Copies share what pointers
// and slices point at, which nobody changes. The zero value is not usable: start from [Defaults].
type Params struct {
	Preset string // qr_preset: name of the preset that the request named, else that of the process; for records

	Decoder       string // qr_decoder: plain, lookahead, or auto: lookahead when alpha or a wave is set
	Bypass        bool   // qr_bypass: plain sampling by the standard fields
	Temperature   float64
	TopK          int     // qr_top_k: 0 is off
	TopP          float64 // qr_top_p: 1 is off
	MinP          float64 // qr_min_p: 0 is off
	TruncateFirst bool    // qr_truncate_first: top-k and min-p look at the distribution before the temperature
	Seed          *int64  // qr_seed; nil: the entropy source decides
	Strategy      string  // qr_temperature_strategy: a name of temper's table

	FrequencyPenalty  float64     // qr_frequency_penalty: per occurrence in the answer; 0 is off
	PresencePenalty   float64     // qr_presence_penalty: once per token in the answer; 0 is off
	RepetitionPenalty float64     // qr_repetition_penalty: divides or multiplies; 1 is off
	LogitBias         []TokenBias // qr_logit_bias: ascending by token

	Alpha               *float64 // qr_alpha; nil: 0 where lookahead is asked for
	Curve               string   // qr_curve
	WavePeriod          float64  // qr_wave_period: tokens; 0 is off
	WaveAmplitude       float64  // qr_wave_amplitude
	WaveOffset          float64  // qr_wave_offset
	Lookahead           string   // qr_lookahead: lazy, full, full_inverse, bounded
	LookaheadChoice     string   // qr_lookahead_choice: sample or argmax
	LookaheadK          int      // qr_lookahead_k
	LookaheadN          int      // qr_lookahead_n
	LookaheadMinP       float64  // qr_lookahead_min_p
	ConfidenceThreshold float64  // qr_confidence_threshold: 0 is off
	ThinkBan            *bool    // qr_think_ban; nil: on unless the template was told to think

	EntropySource     string   // qr_entropy_source: name of a source of the process; empty: its default
	EntropyPrefetch   bool     // qr_entropy_prefetch: bytes may be asked for before the logits exist
	Amplifier         string   // qr_amplifier: a name of amplify's table
	SampleCount       int      // qr_sample_count: bytes of one draw
	PopulationMean    *float64 // qr_population_mean; nil: the source's own calibration, else that of uniform bytes
	PopulationStd     *float64 // qr_population_std; nil: as the mean
	ClampEpsilon      float64  // qr_uniform_clamp_epsilon
	ZScoreCalibration int      // qr_zscore_calibration_samples: draws; 0 is none
	DrawSourceID      string   // qr_draw_source_id: for a server that makes the numbers itself
	DrawBlockBytes    int      // qr_draw_block_bytes: 0 is the server's own

	LogLevel       string // qr_log_level: none, summary or full
	DiagnosticMode bool   // qr_diagnostic_mode

	more [maxMore]float64 // of the rows that strategies and amplifiers declare, by index
}

// Number reads a number, an integer, or a flag as 1 and 0, by its key. It implements [param.Values], and returns 0 for what is unset.
func (p *Params) Number(key string) float64 {
	r, ok := table.named[key]
	if !ok {
		return 0
	}
	v := r.load(p)
	switch {
	case r.Type == TypeInteger:
		return float64(v.Int)
	case r.Type == TypeBool && v.Bool:
		return 1
	}
	return v.Number
}

// Text reads a text by its key. It implements [param.Values].
func (p *Params) Text(key string) string {
	r, ok := table.named[key]
	if !ok {
		return ""
	}
	return r.load(p).Text
}

// Value reads any field by its key or an alias, as encoding/json would decode it; an integer is an int64. ok is false for an unknown key.
func (p *Params) Value(key string) (value any, ok bool) {
	r, ok := table.named[key]
	if !ok {
		return nil, false
	}
	return r.Go(r.load(p)), true
}

var _ param.Values = (*Params)(nil)

// Equal reports whether p and q have the same values.
func (p Params) Equal(q Params) bool {
	for i := range table.all {
		r := &table.all[i]
		if !r.load(&p).Equal(r.load(&q)) {
			return false
		}
	}
	return true
}

// UsesLookahead tells which decoder p asks for.
func (p *Params) UsesLookahead() bool {
	switch {
	case p.Bypass:
		return false
	case p.Decoder == DecoderLookahead:
		return true
	case p.Decoder == DecoderPlain:
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
