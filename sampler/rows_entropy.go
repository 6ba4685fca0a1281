package sampler

func entropyRows() []row[Params] {
	names, declared := amplifierFields()
	out := append(sourceRows(), row[Params]{
		Field{
			Key: "qr_amplifier", Aliases: []string{"qr_signal_amplifier_type"}, Group: groupEntropy, Env: "QR_AMPLIFIER", Type: TypeString, Enum: names, Default: "zscore_mean",
			Help: "How bytes become the uniform number that picks the token.",
		},
		func(p *Params) any { return &p.Amplifier },
	})
	return append(append(out, amplifierRows()...), moreRows(declared, amplifierSlots)...)
}

func sourceRows() []row[Params] {
	return []row[Params]{
		{
			Field{
				Key: "qr_entropy_source", Aliases: []string{"qr_entropy_source_type"}, Group: groupEntropy, Env: "QR_ENTROPY_SOURCE", Type: TypeString, MaxLen: 64, Default: "",
				Help: "Name of the source of the bytes, one of those that the process has; empty is its default.",
			},
			func(p *Params) any { return &p.EntropySource },
		},
		{
			Field{
				Key: "qr_entropy_prefetch", Group: groupEntropy, Env: "QR_ENTROPY_PREFETCH", Type: TypeBool, Default: false,
				Help: "Asks for the bytes of the next token before its logits exist. Faster with a distant source, and the record says so.",
			},
			func(p *Params) any { return &p.EntropyPrefetch },
		},
		{
			Field{
				Key: "qr_sample_count", Group: groupEntropy, Env: "QR_SAMPLE_COUNT", Type: TypeInteger, Min: 1, Max: 1 << 20, Default: 20480, Unit: "bytes",
				Help: "Bytes taken from the entropy source for one token.",
			},
			func(p *Params) any { return &p.SampleCount },
		},
	}
}

func amplifierRows() []row[Params] {
	return []row[Params]{
		{
			Field{
				Key: "qr_population_mean", Group: groupEntropy, Env: "QR_POPULATION_MEAN", Type: TypeNumber, Max: 255, Nullable: true,
				Help: "Mean of one byte of the source, for the z-score. Unset: the source's own calibration, else that of a uniform byte, 127.5.",
			},
			func(p *Params) any { return &p.PopulationMean },
		},
		{
			Field{
				Key: "qr_population_std", Group: groupEntropy, Env: "QR_POPULATION_STD", Type: TypeNumber, Min: 1, Max: 255, Nullable: true,
				Help: "Standard deviation of one byte of the source, for the z-score. Unset: the source's own calibration, else that of a uniform byte, 73.90027063549903.",
			},
			func(p *Params) any { return &p.PopulationStd },
		},
		{
			Field{
				Key: "qr_uniform_clamp_epsilon", Group: groupEntropy, Env: "QR_UNIFORM_CLAMP_EPSILON", Type: TypeNumber, Min: 1e-15, Max: 0.49, Default: 1e-10,
				Help: "Keeps the uniform number this far away from 0 and from 1.",
			},
			func(p *Params) any { return &p.ClampEpsilon },
		},
		{
			Field{
				Key: "qr_zscore_calibration_samples", Group: groupEntropy, Env: "QR_ZSCORE_CALIBRATION_SAMPLES", Type: TypeInteger, Min: 2, Max: 10000, OrZero: true, Default: 0, Unit: "draws",
				Help: "Measures mean and standard deviation of the source with this many draws before the first token, once per source and draw size.",
			},
			func(p *Params) any { return &p.ZScoreCalibration },
		},
		{
			Field{
				Key: "qr_draw_source_id", Group: groupEntropy, Env: "QR_DRAW_SOURCE_ID", Type: TypeString, MaxLen: 128, Default: "",
				Help: "For a server that makes the numbers itself: which of its sources; empty is the one bound to the API key.",
			},
			func(p *Params) any { return &p.DrawSourceID },
		},
		{
			Field{
				Key: "qr_draw_block_bytes", Group: groupEntropy, Env: "QR_DRAW_BLOCK_BYTES", Type: TypeInteger, Min: 0, Max: 1 << 28, Default: 0, Unit: "bytes",
				Help: "For a server that makes the numbers itself: bytes that it integrates for one; 0 is the server's own choice.",
			},
			func(p *Params) any { return &p.DrawBlockBytes },
		},
	}
}
