package config

import (
	"slices"
	"time"

	"qr-gateway/backends/peek"
	"qr-gateway/backends/vllm"
)

// VLLM is what belongs to a model on a vLLM with our plugin.
type VLLM struct {
	Sidecar    string        `mapstructure:"sidecar"`     // address of a sidecar of its own, HOST:PORT or unix:///PATH; empty: the one in this process
	Fail       string        `mapstructure:"fail"`        // stop or native: what becomes of a token when the sidecar is away or late
	Mismatch   string        `mapstructure:"mismatch"`    // error or count: what becomes of an answer with a token that isn't the sampler's; empty: error with stop, count with native
	Probe      bool          `mapstructure:"probe"`       // ask each server for one token to see that its plugin is there
	ChoiceWait time.Duration `mapstructure:"choice_wait"` // for the sampler's account of a token that is there
}

// Peek is what belongs to a model that is looked ahead on over its server's API.
type Peek struct {
	Logprobs   int      `mapstructure:"logprobs"`   // tokens of a row that the server tells of: its --max-logprobs
	Vocabulary int      `mapstructure:"vocabulary"` // more than any token id of the model
	EndTokens  []string `mapstructure:"end_tokens"` // texts of tokens that end an answer
}

func defaultVLLM() VLLM {
	c := vllm.DefaultConfig()
	return VLLM{Fail: string(c.Fail), Mismatch: string(c.Mismatch), Probe: c.Probe, ChoiceWait: c.ChoiceWait}
}

// OnVLLM is the model as the vllm backend takes it.
func (m Model) OnVLLM() vllm.Config {
	c, u := vllm.DefaultConfig(), m.Upstream()
	c.Model, c.Description, c.URL, c.UpstreamModel = m.ID, m.Description, m.URL, m.UpstreamModel
	c.APIKey, c.APIKeyFile, c.Headers, c.Context, c.Workers, c.Timeouts = m.APIKey, m.APIKeyFile, m.Headers, m.Context, m.Workers, u.Timeouts
	c.Fail, c.Mismatch, c.Probe, c.ChoiceWait = vllm.Fail(m.VLLM.Fail), vllm.Mismatch(m.VLLM.Mismatch), m.VLLM.Probe, m.VLLM.ChoiceWait
	return c
}

// checkVLLM refuses parameters to start from that a sampler beside the model can't follow: it sees one row at a time.
func (m Model) checkVLLM(c *checks) {
	served := slices.ContainsFunc(m.Backends(), func(b Member) bool { return b.Model.Backend == BackendVLLM })
	if !served || !m.Params.UsesLookahead() {
		return
	}
	from := ""
	for _, key := range []string{"qr_alpha", "qr_decoder", "qr_alpha_mode"} {
		if o := m.Origins[key]; o != "" {
			from = "; " + key + " comes from: " + o
		}
	}
	c.fail("defaults", "look ahead, which backend: %s can't do%s; set qr_decoder to plain, or serve the model with backend: %s as well", BackendVLLM, from, BackendPeek)
}

func defaultPeek() Peek {
	c := peek.DefaultConfig()
	return Peek{Logprobs: c.Logprobs, Vocabulary: c.Vocabulary, EndTokens: c.EndTokens}
}

// Peeking is the model as the peek backend takes it.
func (m Model) Peeking() peek.Config {
	c := peek.DefaultConfig()
	c.Upstream, c.Group = m.Upstream(), m.Group
	c.Logprobs, c.Vocabulary, c.EndTokens = m.Peek.Logprobs, m.Peek.Vocabulary, m.Peek.EndTokens
	return c
}
