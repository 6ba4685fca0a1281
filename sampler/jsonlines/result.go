package jsonlines

import "qr-gateway/sampler"

// Result is a chosen token and everything that decided it.
type Result struct {
	Line   int    `json:"line"` // of the input, from 1
	Stream string `json:"stream,omitempty"`
	Step   int    `json:"step"` // of the token within its answer, from 0

	Token       int32   `json:"token"`
	Rank        int     `json:"rank"` // 0 is the most probable
	Probability float64 `json:"probability"`
	Candidates  int     `json:"candidates"`   // after every cut
	AfterTopK   int     `json:"after_top_k"`  //
	AfterMinP   int     `json:"after_min_p"`  //
	NeedsU      bool    `json:"needs_number"` // false: nothing was left to chance

	Strategy    string        `json:"strategy"`
	Temperature float64       `json:"temperature"` // 0 or below is greedy
	MinP        float64       `json:"min_p"`
	H           sampler.Maybe `json:"h"`      // nats
	VH          sampler.Maybe `json:"vh"`     // nats^2
	HNorm       sampler.Maybe `json:"h_norm"` // h over the logarithm of the vocabulary
	Diagnostics sampler.Notes `json:"diagnostics"`

	U         sampler.Maybe `json:"u"`
	Amplifier string        `json:"amplifier"`
	Z         sampler.Maybe `json:"z"`
	Mean      sampler.Maybe `json:"sample_mean"`
	SEM       sampler.Maybe `json:"sem"`
	EcdfRank  int           `json:"ecdf_rank,omitzero"`
	EcdfSize  int           `json:"ecdf_size,omitzero"`

	Preset     string `json:"preset,omitempty"`
	ConfigHash string `json:"config_hash"`
}

func newResult(plan sampler.Plan, draw sampler.Draw, r sampler.Record, needs bool) *Result {
	u := r.U
	if needs {
		u = sampler.Maybe(draw.U)
	}
	return &Result{
		Step: r.Step, Token: draw.Token, Rank: draw.Rank, Probability: draw.Prob,
		Candidates: draw.Candidates, AfterTopK: draw.AfterTopK, AfterMinP: draw.AfterMinP, NeedsU: needs,
		Strategy: plan.Strategy, Temperature: plan.Temperature, MinP: plan.MinP,
		H: r.H, VH: r.VH, HNorm: r.HNorm, Diagnostics: r.Diagnostics,
		U: u, Amplifier: r.Amplifier, Z: r.Z, Mean: r.Mean, SEM: r.SEM, EcdfRank: r.EcdfRank, EcdfSize: r.EcdfSize,
		Preset: r.Preset, ConfigHash: r.ConfigHash,
	}
}
