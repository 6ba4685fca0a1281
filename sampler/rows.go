package sampler

import (
	"math"
	"slices"
)

// Values of the fields that take one of a few words.
const (
	DecoderAuto      = "auto"
	DecoderPlain     = "plain"
	DecoderLookahead = "lookahead"

	CurveArticle   = "article"
	CurveCrossfade = "crossfade"
	CurveSeed      = "seed"

	ModeLazy        = "lazy"
	ModeFull        = "full"
	ModeFullInverse = "full_inverse"
	ModeBounded     = "bounded"

	ChoiceSample = "sample"
	ChoiceArgmax = "argmax"
)

// row ties a field of the table to its place in Params. at returns a pointer: *string, *float64, *int, or, for a nullable field,
// **float64, **int64, **bool.
type row struct {
	Field
	at func(*Params) any
}

// table is the parameter table. It is never changed, and no part of it is handed out.
var table = append(choiceRows(), lookaheadRows()...)

func choiceRows() []row {
	return []row{
		{
			Field{
				Key: "qr_decoder", Env: "QR_DECODER", Type: TypeString, Enum: []string{DecoderAuto, DecoderPlain, DecoderLookahead}, Default: DecoderAuto,
				Help: "How tokens are chosen: from the row at hand (plain), or also by what would follow (lookahead). auto is lookahead where qr_alpha or a wave is set.",
			},
			func(p *Params) any { return &p.Decoder },
		},
		{
			Field{
				Key: "qr_temperature", Standard: "temperature", Env: "QR_TEMPERATURE", Type: TypeNumber, Max: 5, Default: 1.0,
				Help: "Divides the logits, or the logarithm of the lookahead score, before sampling. 0 takes the best.",
			},
			func(p *Params) any { return &p.Temperature },
		},
		{
			Field{
				Key: "qr_top_k", Standard: "top_k", Env: "QR_TOP_K", Type: TypeInteger, Max: 1e6, Default: 0, Unit: "tokens",
				Help: "Plain decoding keeps this many of the most probable tokens; 0 keeps all.",
			},
			func(p *Params) any { return &p.TopK },
		},
		{
			Field{
				Key: "qr_top_p", Standard: "top_p", Env: "QR_TOP_P", Type: TypeNumber, Max: 1, Default: 1.0,
				Help: "Plain decoding keeps the most probable tokens up to this total probability; 1 keeps all, 0 keeps one.",
			},
			func(p *Params) any { return &p.TopP },
		},
		{
			Field{
				Key: "qr_min_p", Standard: "min_p", Env: "QR_MIN_P", Type: TypeNumber, Max: 1, Default: 0.0,
				Help: "Plain decoding keeps tokens with at least this share of the largest probability; 0 keeps all.",
			},
			func(p *Params) any { return &p.MinP },
		},
		{
			Field{
				Key: "qr_seed", Standard: "seed", Env: "QR_SEED", Type: TypeInteger, Min: math.MinInt64, Max: math.MaxInt64, Nullable: true,
				Help: "Makes the choice repeatable: numbers come from a generator instead of the entropy source.",
			},
			func(p *Params) any { return &p.Seed },
		},
		{
			Field{
				Key: "qr_sample_count", Env: "QR_SAMPLE_COUNT", Type: TypeInteger, Min: 1, Max: 1 << 20, Default: 20480, Unit: "bytes",
				Help: "Bytes taken from the entropy source for one token.",
			},
			func(p *Params) any { return &p.SampleCount },
		},
		{
			Field{
				Key: "qr_population_std", Env: "QR_POPULATION_STD", Type: TypeNumber, Min: 1, Max: 255, Default: 73.90027063549903,
				Help: "Standard deviation of one byte of the entropy source, for the z-score; the default is that of a uniform byte.",
			},
			func(p *Params) any { return &p.PopulationStd },
		},
	}
}

func lookaheadRows() []row {
	return append([]row{
		{
			Field{
				Key: "qr_alpha", Env: "QR_ALPHA", Type: TypeNumber, Min: -1, Max: 1, Nullable: true,
				Help: "Weight of the future: -1 is the model's own probability, 0 weighs both, 1 is only the openness of what follows.",
			},
			func(p *Params) any { return &p.Alpha },
		},
		{
			Field{
				Key: "qr_curve", Env: "QR_CURVE", Type: TypeString, Enum: []string{CurveArticle, CurveCrossfade, CurveSeed}, Default: CurveArticle,
				Help: "How alpha becomes the two exponents of the score p^a H^b.",
			},
			func(p *Params) any { return &p.Curve },
		},
		{
			Field{
				Key: "qr_wave_period", Env: "QR_WAVE_PERIOD", Type: TypeNumber, Max: 1e5, Default: 0.0, Unit: "tokens",
				Help: "Period of a sine that alpha follows: 0 is off, else at least 2.",
			},
			func(p *Params) any { return &p.WavePeriod },
		},
		{
			Field{
				Key: "qr_wave_amplitude", Env: "QR_WAVE_AMPLITUDE", Type: TypeNumber, Max: 2, Default: 0.6,
				Help: "Height of the sine. alpha is kept between -1 and 1.",
			},
			func(p *Params) any { return &p.WaveAmplitude },
		},
		{
			Field{
				Key: "qr_wave_offset", Env: "QR_WAVE_OFFSET", Type: TypeNumber, Min: -2, Max: 2, Default: -0.2,
				Help: "Middle of the sine.",
			},
			func(p *Params) any { return &p.WaveOffset },
		},
	}, peekRows()...)
}

func peekRows() []row {
	return []row{
		{
			Field{
				Key: "qr_lookahead", Env: "QR_LOOKAHEAD", Type: TypeString, Enum: []string{ModeLazy, ModeFull, ModeFullInverse, ModeBounded}, Default: ModeLazy,
				Help: "Which candidates are evaluated. lazy and full choose the same token, bounded and full_inverse too; the latter two use one number per token.",
			},
			func(p *Params) any { return &p.Lookahead },
		},
		{
			Field{
				Key: "qr_lookahead_choice", Env: "QR_LOOKAHEAD_CHOICE", Type: TypeString, Enum: []string{ChoiceSample, ChoiceArgmax}, Default: ChoiceSample,
				Help: "Draw from the scores, or take the best.",
			},
			func(p *Params) any { return &p.LookaheadChoice },
		},
		{
			Field{
				Key: "qr_lookahead_k", Env: "QR_LOOKAHEAD_K", Type: TypeInteger, Min: 1, Max: 256, Default: 20, Unit: "tokens",
				Help: "Candidates per token, at most.",
			},
			func(p *Params) any { return &p.LookaheadK },
		},
		{
			Field{
				Key: "qr_lookahead_n", Env: "QR_LOOKAHEAD_N", Type: TypeInteger, Min: 2, Max: 1000, Default: 30, Unit: "tokens",
				Help: "Most probable next tokens that the entropy of a candidate is computed over.",
			},
			func(p *Params) any { return &p.LookaheadN },
		},
		{
			Field{
				Key: "qr_lookahead_min_p", Env: "QR_LOOKAHEAD_MIN_P", Type: TypeNumber, Max: 1, Default: 0.05,
				Help: "Candidates have at least this share of the largest probability. Without it broken pieces of words win, since they leave the most open.",
			},
			func(p *Params) any { return &p.LookaheadMinP },
		},
		{
			Field{
				Key: "qr_confidence_threshold", Env: "QR_CONFIDENCE_THRESHOLD", Type: TypeNumber, Max: 1, Default: 0.0,
				Help: "Where the largest probability reaches this, the token is chosen without looking ahead; 0 is off.",
			},
			func(p *Params) any { return &p.ConfidenceThreshold },
		},
		{
			Field{
				Key: "qr_think_ban", Env: "QR_THINK_BAN", Type: TypeBool, Nullable: true,
				Help: "Bans control tokens and the markers of a thinking block. Unset: on with lookahead, unless thinking was asked for.",
			},
			func(p *Params) any { return &p.ThinkBan },
		},
	}
}

// Fields returns a copy of the parameter table.
func Fields() []Field {
	out := make([]Field, len(table))
	for i := range table {
		out[i] = table[i].Field
		out[i].Enum = slices.Clone(out[i].Enum)
		out[i].PerRequest = true
	}
	return out
}

// Defaults returns the parameters of a request that asks for nothing.
func Defaults() Params {
	var p Params
	for i := range table {
		r := &table[i]
		switch at := r.at(&p).(type) {
		case *string:
			*at, _ = r.Default.(string)
		case *float64:
			*at, _ = r.Default.(float64)
		case *int:
			*at, _ = r.Default.(int)
		}
	}
	return p
}
