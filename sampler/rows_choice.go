package sampler

import "math"

func requestRows() []row[Params] {
	return []row[Params]{
		{
			Field{
				Key: "qr_preset", Group: groupRequest, Env: "QR_PRESET", Type: TypeString, MaxLen: 64, Default: "",
				Help: "Name of a set of parameters to start from. What the request sets itself wins over it.",
			},
			func(p *Params) any { return &p.Preset },
		},
		{
			Field{
				Key: "qr_bypass", Group: groupRequest, Env: "QR_BYPASS", Type: TypeBool, Default: false,
				Help: "Plain sampling by the standard fields (temperature, top_p and so on): all other qr_ keys are checked and not used.",
			},
			func(p *Params) any { return &p.Bypass },
		},
		{
			Field{
				Key: "qr_log_level", Group: groupRequest, Env: "QR_LOG_LEVEL", Type: TypeString, Enum: []string{LogNone, LogSummary, LogFull}, Default: LogNone,
				Help: "What the engine's log says of each token of this request: nothing, a line of its main values, or its whole record as JSON.",
			},
			func(p *Params) any { return &p.LogLevel },
		},
		{
			Field{
				Key: "qr_diagnostic_mode", Group: groupRequest, Env: "QR_DIAGNOSTIC_MODE", Type: TypeBool, Default: false,
				Help: "Keeps the whole record of every token, each diagnostic of the strategy included.",
			},
			func(p *Params) any { return &p.DiagnosticMode },
		},
	}
}

func choiceRows() []row[Params] {
	return []row[Params]{
		{
			Field{
				Key: "qr_decoder", Group: groupChoice, Env: "QR_DECODER", Type: TypeString, Enum: []string{DecoderAuto, DecoderPlain, DecoderLookahead}, Default: DecoderAuto,
				Help: "How tokens are chosen: from the row at hand (plain), or also by what would follow (lookahead). auto is lookahead where qr_alpha or a wave is set.",
			},
			func(p *Params) any { return &p.Decoder },
		},
		{
			Field{
				Key: "qr_temperature", Aliases: []string{"qr_fixed_temperature"}, Group: groupChoice, Standard: "temperature", Env: "QR_TEMPERATURE",
				Type: TypeNumber, Max: 5, Default: 1.0,
				Help: "Divides the logits, or the logarithm of the lookahead score, before sampling. 0 takes the best. Other strategies than fixed set their own.",
			},
			func(p *Params) any { return &p.Temperature },
		},
		{
			Field{
				Key: "qr_top_k", Group: groupChoice, Standard: "top_k", Env: "QR_TOP_K", Type: TypeInteger, Min: -1, Max: 1e6, Default: 0, Unit: "tokens",
				Help: "Plain decoding keeps this many of the most probable tokens; 0 and -1 keep all.",
			},
			func(p *Params) any { return &p.TopK },
		},
		{
			Field{
				Key: "qr_top_p", Group: groupChoice, Standard: "top_p", Env: "QR_TOP_P", Type: TypeNumber, Max: 1, Default: 1.0,
				Help: "Plain decoding keeps the most probable tokens up to this total probability; 1 keeps all, 0 keeps one.",
			},
			func(p *Params) any { return &p.TopP },
		},
		{
			Field{
				Key: "qr_min_p", Aliases: []string{"qr_min_p_base"}, Group: groupChoice, Standard: "min_p", Env: "QR_MIN_P", Type: TypeNumber, Max: 1, Default: 0.0,
				Help: "Plain decoding keeps tokens with at least this share of the largest probability; 0 keeps all. Not used where the strategy sets its own.",
			},
			func(p *Params) any { return &p.MinP },
		},
		{
			Field{
				Key: "qr_truncate_first", Group: groupChoice, Env: "QR_TRUNCATE_FIRST", Type: TypeBool, Default: false,
				Help: "Plain decoding applies top-k and min-p to the distribution before the temperature instead of after it.",
			},
			func(p *Params) any { return &p.TruncateFirst },
		},
		{
			Field{
				Key: "qr_seed", Group: groupChoice, Standard: "seed", Env: "QR_SEED", Type: TypeInteger, Min: math.MinInt64, Max: math.MaxInt64, Nullable: true,
				Help: "Makes the choice repeatable: numbers come from a generator instead of the entropy source.",
			},
			func(p *Params) any { return &p.Seed },
		},
	}
}

func penaltyRows() []row[Params] {
	return []row[Params]{
		{
			Field{
				Key: "qr_frequency_penalty", Group: groupPenalties, Standard: "frequency_penalty", Env: "QR_FREQUENCY_PENALTY", Type: TypeNumber, Min: -2, Max: 2, Default: 0.0,
				Help: "Subtracted from the logit of a token for every time that the answer has it.",
			},
			func(p *Params) any { return &p.FrequencyPenalty },
		},
		{
			Field{
				Key: "qr_presence_penalty", Group: groupPenalties, Standard: "presence_penalty", Env: "QR_PRESENCE_PENALTY", Type: TypeNumber, Min: -2, Max: 2, Default: 0.0,
				Help: "Subtracted from the logit of a token that the answer has.",
			},
			func(p *Params) any { return &p.PresencePenalty },
		},
		{
			Field{
				Key: "qr_repetition_penalty", Group: groupPenalties, Standard: "repetition_penalty", Env: "QR_REPETITION_PENALTY",
				Type: TypeNumber, MinOpen: true, Max: 10, Default: 1.0,
				Help: "Divides the positive logit, and multiplies the negative one, of a token that the prompt or the answer has. 1 is off.",
			},
			func(p *Params) any { return &p.RepetitionPenalty },
		},
		{
			Field{
				Key: "qr_logit_bias", Group: groupPenalties, Standard: "logit_bias", Env: "QR_LOGIT_BIAS", Type: TypeObject, MaxLen: 4096, Min: -100, Max: 100,
				Default: map[string]any{},
				Help:    "Added to the logits of tokens, by their ids: {\"50\": -100} all but bans token 50.",
			},
			func(p *Params) any { return &p.LogitBias },
		},
	}
}
