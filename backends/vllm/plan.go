package vllm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"qr-gateway/backends"
	"qr-gateway/backends/members"
	"qr-gateway/sampler"
)

const (
	mostParts     = 128      // requests that one becomes
	mostCfgBytes  = 64 << 10 // of the parameters as the plugin takes them
	pluginVersion = 1
	xargsKey      = "vllm_xargs"
)

// part is one request to the server, of which there is one for each choice.
type part struct {
	index  int             // of the choice
	prompt int             // of the request's prompts, from 0
	text   json.RawMessage // that prompt; nil: the request's own
	params sampler.Params
}

// plan says which requests a sampled one becomes, and refuses what can't be had.
func (b *Backend) plan(req *backends.Request) ([]part, error) {
	o, err := members.Parse(req.Raw)
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	if err := possible(o, &req.Params); err != nil {
		return nil, err
	}
	n, err := choicesOf(o)
	if err != nil {
		return nil, err
	}
	prompts := promptsOf(o)
	if n*len(prompts) > mostParts {
		return nil, invalid("n", "invalid_value", fmt.Sprintf("n is %d for each of %d prompts; together they take up to %d", n, len(prompts), mostParts), "")
	}
	parts := make([]part, 0, n*len(prompts))
	for at, text := range prompts {
		for nth := range n {
			parts = append(parts, part{index: len(parts), prompt: at, text: text, params: reseeded(req.Params, nth)})
		}
	}
	return parts, nil
}

// fits refuses parameters that the plugin would not take. Only an object can make them so long.
func fits(p *sampler.Params) error {
	cfg, err := settings(p)
	if err != nil {
		return fmt.Errorf("encode parameters: %w", err)
	}
	if len(cfg) > mostCfgBytes {
		return invalid("logit_bias", "invalid_value", fmt.Sprintf("the request's parameters have %d bytes; this model takes up to %d", len(cfg), mostCfgBytes), "give fewer entries")
	}
	return nil
}

// possible refuses what would not do what it says.
func possible(o *members.Object, p *sampler.Params) error {
	if p.UsesLookahead() {
		return invalid("qr_decoder", "unsupported_parameter", "this model is served by vLLM, and can't look ahead yet",
			"leave qr_alpha and the wave out, or send qr_decoder: plain")
	}
	for _, key := range []string{"echo", "use_beam_search"} {
		if string(o.Get(key)) == "true" {
			return invalid(key, "unsupported_parameter", key+" can't be had together with qr_ parameters", "leave it out")
		}
	}
	if best := o.Get("best_of"); best != nil && string(best) != "null" && string(best) != "1" {
		return invalid("best_of", "unsupported_parameter", "best_of can't be had together with qr_ parameters", "leave it out, or send 1")
	}
	if string(o.Get("include_reasoning")) == "false" { // vLLM would leave out which tokens it emitted as well
		return invalid("include_reasoning", "unsupported_parameter", "include_reasoning: false can't be had together with qr_ parameters", "leave it out, and drop the reasoning of the answer")
	}
	return nil
}

func invalid(param, code, message, hint string) error {
	return &backends.Error{Kind: backends.KindInvalid, Code: code, Param: param, Message: message, Hint: hint}
}

func choicesOf(o *members.Object) (int, error) {
	raw := o.Get("n")
	if raw == nil || string(raw) == "null" {
		return 1, nil
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || n != float64(int(n)) || n < 1 || n > mostParts {
		return 0, invalid("n", "invalid_value", fmt.Sprintf("n is %.40s; it takes an integer from 1 to %d", raw, mostParts), "")
	}
	return int(n), nil
}

// promptsOf are the prompts of a completion that has several, else one that is nil.
func promptsOf(o *members.Object) []json.RawMessage {
	raw, ok := bytes.CutPrefix(bytes.TrimSpace(o.Get("prompt")), []byte("["))
	if raw = bytes.TrimSpace(raw); !ok || len(raw) == 0 || bytes.IndexByte([]byte(`"[{`), raw[0]) < 0 {
		return []json.RawMessage{nil} // a text, or tokens of one
	}
	var list []json.RawMessage
	if json.Unmarshal(o.Get("prompt"), &list) != nil {
		return []json.RawMessage{nil} // and the server will refuse it
	}
	return list
}

// reseeded are the parameters of the nth choice: those of one seed differ, and the first is as if it were alone.
func reseeded(p sampler.Params, nth int) sampler.Params {
	if p.Seed != nil {
		p.Seed = new(*p.Seed + int64(nth))
	}
	return p
}

// settings are the parameters in the form in which the sampler reads them: those that are not at the table's default.
func settings(p *sampler.Params) ([]byte, error) {
	defaults := sampler.Defaults()
	out := map[string]any{}
	for _, d := range p.Differences(&defaults) {
		out[d.Key] = d.Value
	}
	return json.Marshal(out)
}

// wire makes a part's body of the request's.
func (b *Backend) wire(req *backends.Request, p *part, rid string, several bool) ([]byte, error) {
	o, err := members.Parse(req.Raw)
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	set, err := b.cfg.neutral(&p.params)
	if err != nil {
		return nil, err
	}
	if set[xargsKey], err = b.xargs(o.Get(xargsKey), p, rid); err != nil {
		return nil, err
	}
	if p.text != nil {
		set["prompt"] = p.text
	}
	if req.Stream {
		set["stream_options"] = streamOptions(o.Get("stream_options"), several)
	}
	if several {
		set["request_id"] = nil
	}
	return o.Edit(set, nil), nil
}

// neutral are the fields that make the server's own sampling void, or with [FailNative] leave what a token that nobody chose is to be drawn by.
// Each is sent: what is left out is filled in from the model's own configuration.
func (c Config) neutral(p *sampler.Params) (map[string][]byte, error) {
	own := map[string]float64{"temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0}
	if c.Fail == FailNative {
		own = map[string]float64{"temperature": p.Temperature, "top_p": p.TopP, "top_k": float64(p.TopK), "min_p": p.MinP}
		if p.TopP == 0 { // which the server refuses: the most probable token alone
			own["top_p"], own["top_k"] = 1, 1
		}
	}
	set := map[string][]byte{
		"presence_penalty": []byte("0"), "frequency_penalty": []byte("0"), "repetition_penalty": []byte("1"),
		"seed": nil, "logit_bias": nil, "best_of": nil, "n": []byte("1"), "use_beam_search": []byte("false"), "watermarking": []byte("false"),
		"return_token_ids": []byte("true"),
	}
	for key, value := range own {
		var err error
		if set[key], err = json.Marshal(value); err != nil {
			return nil, fmt.Errorf("encode %s: %w", key, err)
		}
	}
	return set, nil
}

// xargs adds what the plugin takes to the client's own arguments for others.
func (b *Backend) xargs(client json.RawMessage, p *part, rid string) ([]byte, error) {
	cfg, err := settings(&p.params)
	if err != nil {
		return nil, fmt.Errorf("encode parameters: %w", err)
	}
	o, err := members.Parse(client)
	if err != nil {
		if o, err = members.Parse([]byte("{}")); err != nil {
			return nil, err
		}
	}
	return o.Edit(map[string][]byte{
		"qr_rid": []byte(members.Quote(rid)), "qr_v": []byte(strconv.Itoa(pluginVersion)), "qr_cfg": []byte(members.Quote(string(cfg))),
		"qr_fail": []byte(members.Quote(string(b.cfg.Fail))),
	}, nil), nil
}

// streamOptions asks for the usage, which is always wanted here. Usage in every chunk is not: of several parts it would be of one.
func streamOptions(client json.RawMessage, several bool) []byte {
	set := map[string][]byte{"include_usage": []byte("true")}
	if several {
		set["continuous_usage_stats"] = nil
	}
	o, err := members.Parse(client)
	if err != nil {
		return []byte(`{"include_usage":true}`)
	}
	return o.Edit(set, nil)
}
