package sampler

func lookaheadRows() []row[Params] {
	return append([]row[Params]{
		{
			Field{
				Key: "qr_alpha", Group: groupLookahead, Env: "QR_ALPHA", Type: TypeNumber, Min: -1, Max: 1, Nullable: true,
				Help: "Weight of the future: -1 is the model's own probability, 0 weighs both, 1 is only the openness of what follows.",
			},
			func(p *Params) any { return &p.Alpha },
		},
		{
			Field{
				Key: "qr_curve", Group: groupLookahead, Env: "QR_CURVE", Type: TypeString, Enum: []string{CurveArticle, CurveCrossfade, CurveSeed}, Default: CurveArticle,
				Help: "How alpha becomes the two exponents of the score p^a H^b.",
			},
			func(p *Params) any { return &p.Curve },
		},
		{
			Field{
				Key: "qr_wave_period", Group: groupLookahead, Env: "QR_WAVE_PERIOD", Type: TypeNumber, Min: 2, Max: 1e5, OrZero: true, Default: 0.0, Unit: "tokens",
				Help: "Period of a sine that alpha follows.",
			},
			func(p *Params) any { return &p.WavePeriod },
		},
		{
			Field{
				Key: "qr_wave_amplitude", Group: groupLookahead, Env: "QR_WAVE_AMPLITUDE", Type: TypeNumber, Max: 2, Default: 0.6,
				Help: "Height of the sine. alpha is kept between -1 and 1.",
			},
			func(p *Params) any { return &p.WaveAmplitude },
		},
		{
			Field{
				Key: "qr_wave_offset", Group: groupLookahead, Env: "QR_WAVE_OFFSET", Type: TypeNumber, Min: -2, Max: 2, Default: -0.2,
				Help: "Middle of the sine.",
			},
			func(p *Params) any { return &p.WaveOffset },
		},
	}, peekRows()...)
}

func peekRows() []row[Params] {
	return []row[Params]{
		{
			Field{
				Key: "qr_lookahead", Group: groupLookahead, Env: "QR_LOOKAHEAD", Type: TypeString, Enum: []string{ModeLazy, ModeFull, ModeFullInverse, ModeBounded}, Default: ModeLazy,
				Help: "Which candidates are evaluated. lazy and full choose the same token, bounded and full_inverse too; the latter two use one number per token.",
			},
			func(p *Params) any { return &p.Lookahead },
		},
		{
			Field{
				Key: "qr_lookahead_choice", Group: groupLookahead, Env: "QR_LOOKAHEAD_CHOICE", Type: TypeString, Enum: []string{ChoiceSample, ChoiceArgmax}, Default: ChoiceSample,
				Help: "Draw from the scores, or take the best.",
			},
			func(p *Params) any { return &p.LookaheadChoice },
		},
		{
			Field{
				Key: "qr_lookahead_k", Group: groupLookahead, Env: "QR_LOOKAHEAD_K", Type: TypeInteger, Min: 1, Max: 256, Default: 20, Unit: "tokens",
				Help: "Candidates per token, at most.",
			},
			func(p *Params) any { return &p.LookaheadK },
		},
		{
			Field{
				Key: "qr_lookahead_n", Group: groupLookahead, Env: "QR_LOOKAHEAD_N", Type: TypeInteger, Min: 2, Max: 1000, Default: 30, Unit: "tokens",
				Help: "Most probable next tokens that the entropy of a candidate is computed over.",
			},
			func(p *Params) any { return &p.LookaheadN },
		},
		{
			Field{
				Key: "qr_lookahead_min_p", Group: groupLookahead, Env: "QR_LOOKAHEAD_MIN_P", Type: TypeNumber, Max: 1, Default: 0.05,
				Help: "Candidates have at least this share of the largest probability. Without it broken pieces of words win, since they leave the most open.",
			},
			func(p *Params) any { return &p.LookaheadMinP },
		},
		{
			Field{
				Key: "qr_confidence_threshold", Group: groupLookahead, Env: "QR_CONFIDENCE_THRESHOLD", Type: TypeNumber, Max: 1, Default: 0.0,
				Help: "Where the largest probability reaches this, the token is chosen without looking ahead; 0 is off.",
			},
			func(p *Params) any { return &p.ConfidenceThreshold },
		},
		{
			Field{
				Key: "qr_think_ban", Group: groupLookahead, Env: "QR_THINK_BAN", Type: TypeBool, Nullable: true,
				Help: "Bans control tokens and the markers of a thinking block. Unset: on with lookahead, unless thinking was asked for.",
			},
			func(p *Params) any { return &p.ThinkBan },
		},
	}
}
