package api

import (
	"encoding/json"
	"fmt"
	"slices"

	"qr-gateway/backends"
	"qr-gateway/backends/members"
	"qr-gateway/sampler"
)

// Sampled reads a request that is passed on to a server whose tokens the gateway can choose. Where the request or the model's defaults have
// parameters of ours, these and the standard fields are read as those of any other model, and the request is [backends.Request].Sampled; all
// other fields stay as they are, as in [Body.Raw]. Else it goes on untouched, and its standard fields are for the server to judge.
func (b *Body) Sampled(to Passing, defaults sampler.Params) (*Call, error) {
	own, err := b.fields.gather()
	if err != nil {
		return nil, err
	}
	to.strip = true
	call, err := b.Raw(to)
	if err != nil || len(own) == 0 && (b.plain || !chooses(&defaults)) {
		return call, err
	}
	params, err := b.lay(own, defaults)
	if err != nil || b.plain {
		return call, err
	}
	call.Request.Params, call.Request.Sampled = params, true
	call.Given = params.Settings(b.fields.keys(own))
	return call, nil
}

// logLevelKey is of a parameter that chooses nothing.
const logLevelKey = "qr_log_level"

// chooses says that a model's defaults have a say in how its tokens are chosen, by a parameter that a request could have as well.
func chooses(p *sampler.Params) bool {
	table := sampler.Defaults()
	if p.Equal(table) {
		return false
	}
	return slices.ContainsFunc(p.Differences(&table), func(s sampler.Setting) bool {
		_, err := sampler.RequestKey(s.Key)
		return err == nil && s.Key != logLevelKey
	})
}

// Complete adds to raw, the last chunk or the whole reply of another server, what replies say of how their tokens were chosen.
func (h *Head) Complete(raw json.RawMessage, r *backends.Result) (json.RawMessage, error) {
	o, err := members.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("read the end of the answer: %w", err)
	}
	set := map[string][]byte{}
	if set["qr"], err = encode(h.stats(&r.Stats)); err != nil {
		return nil, fmt.Errorf("encode the answer's statistics: %w", err)
	}
	if usage, err := members.Parse(o.Get("usage")); err == nil {
		summary, err := encode(h.summary(&r.Stats))
		if err != nil {
			return nil, fmt.Errorf("encode the answer's summary: %w", err)
		}
		set["usage"] = usage.Edit(map[string][]byte{"qr": summary}, nil)
	}
	return o.Edit(set, nil), nil
}
