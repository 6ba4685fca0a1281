package sampler

// Params are the values that decide how tokens are chosen. Every field has one row in the table (see [Fields]); the JSON
// names are the table's keys. The zero value is not usable: start from [Defaults].
type Params struct {
	Decoder     string  `json:"qr_decoder"`     // plain, lookahead, or auto: lookahead when alpha or a wave is set
	Temperature float64 `json:"qr_temperature"` // 0 is greedy
	TopK        int     `json:"qr_top_k"`       // 0 is off
	TopP        float64 `json:"qr_top_p"`       // 1 is off
	MinP        float64 `json:"qr_min_p"`       // 0 is off
	Seed        *int64  `json:"qr_seed"`        // nil: the entropy source decides

	Alpha               *float64 `json:"qr_alpha"` // nil: 0 where lookahead is asked for
	Curve               string   `json:"qr_curve"`
	WavePeriod          float64  `json:"qr_wave_period"` // tokens; 0 is off
	WaveAmplitude       float64  `json:"qr_wave_amplitude"`
	WaveOffset          float64  `json:"qr_wave_offset"`
	Lookahead           string   `json:"qr_lookahead"`        // lazy, full, full_inverse, bounded
	LookaheadChoice     string   `json:"qr_lookahead_choice"` // sample or argmax
	LookaheadK          int      `json:"qr_lookahead_k"`
	LookaheadN          int      `json:"qr_lookahead_n"`
	LookaheadMinP       float64  `json:"qr_lookahead_min_p"`
	ConfidenceThreshold float64  `json:"qr_confidence_threshold"` // 0 is off
	ThinkBan            *bool    `json:"qr_think_ban"`            // nil: on unless the template was told to think

	SampleCount   int     `json:"qr_sample_count"` // bytes of one draw
	PopulationStd float64 `json:"qr_population_std"`
}
