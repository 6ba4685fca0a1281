package vllm

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"qr-gateway/backends"
	"qr-gateway/backends/members"
	"qr-gateway/sampler"
)

// sum makes one result of those of all parts.
func (r *run) sum(all []*result) (*backends.Result, error) {
	out := &backends.Result{Reason: all[0].reason, Stats: stats(all), Usage: usage(all)}
	var err error
	switch {
	case !r.dress.stream:
		out.Last, err = r.whole(all, out.Usage)
	case r.dress.usage:
		out.Last, err = r.counted(all, out.Usage)
	default:
		out.Last, err = r.dress.fit(r.final.last, r.final.part.index)
	}
	if err != nil {
		return nil, r.b.up.Nonsense(err)
	}
	return out, nil
}

// usage adds up. The choices of one prompt share its tokens.
func usage(all []*result) (sum backends.Usage) {
	prompts := -1
	for _, res := range all {
		sum.CompletionTokens += res.usage.CompletionTokens
		if res.part.prompt > prompts {
			prompts = res.part.prompt
			sum.PromptTokens += res.usage.PromptTokens
			sum.CachedTokens += res.usage.CachedTokens
		}
	}
	return sum
}

// whole is a reply with the choices of all.
func (r *run) whole(all []*result, u backends.Usage) (json.RawMessage, error) {
	choices := []byte{'['}
	for i, res := range all {
		own, err := r.dress.choices(res.last.choices, res.part.index)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			choices = append(choices, ',')
		}
		choices = append(choices, own[1:len(own)-1]...)
	}
	raw, err := r.dress.fit(all[0].last, 0)
	if err != nil || len(all) == 1 {
		return raw, err
	}
	o, err := members.Parse(raw)
	if err != nil {
		return nil, err
	}
	return o.Edit(map[string][]byte{"choices": append(choices, ']'), "usage": tally(o.Get("usage"), u)}, nil), nil
}

// counted is the last chunk of a stream whose client asked for the usage.
func (r *run) counted(all []*result, u backends.Usage) (json.RawMessage, error) {
	k := all[0].count
	if k == nil { // made of the finish reason's, which has everything else
		o, err := members.Parse(all[0].last.raw)
		if err != nil {
			return nil, fmt.Errorf("read chunk: %w", err)
		}
		k = &chunk{raw: o.Edit(map[string][]byte{"choices": []byte("[]"), "usage": tally(nil, u)}, nil)}
	}
	raw, err := r.dress.fit(k, 0)
	if err != nil || len(all) == 1 {
		return raw, err
	}
	o, err := members.Parse(raw)
	if err != nil {
		return nil, err
	}
	return o.Edit(map[string][]byte{"usage": tally(o.Get("usage"), u)}, nil), nil
}

// tally puts the numbers of u into a usage, and leaves all else of it.
func tally(form json.RawMessage, u backends.Usage) []byte {
	o, err := members.Parse(form)
	if err != nil {
		if o, err = members.Parse([]byte("{}")); err != nil {
			return []byte("null")
		}
	}
	set := map[string][]byte{
		"prompt_tokens": strconv.AppendInt(nil, int64(u.PromptTokens), 10), "completion_tokens": strconv.AppendInt(nil, int64(u.CompletionTokens), 10),
		"total_tokens": strconv.AppendInt(nil, int64(u.PromptTokens+u.CompletionTokens), 10),
	}
	if details, err := members.Parse(o.Get("prompt_tokens_details")); err == nil {
		set["prompt_tokens_details"] = details.Edit(map[string][]byte{"cached_tokens": strconv.AppendInt(nil, int64(u.CachedTokens), 10)}, nil)
	}
	return o.Edit(set, nil)
}

// stats are those of the only part, or of all together with each one's own.
func stats(all []*result) backends.DecodeStats {
	out := all[0].stats
	if len(all) == 1 {
		return out
	}
	flagged := map[string]int{}
	out.Records, out.RecordsDropped, out.Thought = nil, 0, nil
	out.Peeks, out.EntropyBytes, out.Tokens, out.FallbackTokens, out.Pipelined, out.Discarded, out.Native, out.Mismatched = 0, 0, 0, 0, 0, 0, 0, 0
	for _, res := range all {
		s := &res.stats
		out.Choices = append(out.Choices, *s)
		out.EntropyBytes += s.EntropyBytes
		out.Tokens += s.Tokens
		out.FallbackTokens += s.FallbackTokens
		out.Pipelined += s.Pipelined
		out.Discarded += s.Discarded
		out.Native += s.Native
		out.Mismatched += s.Mismatched
		out.PromptMS, out.DecodeMS = max(out.PromptMS, s.PromptMS), max(out.DecodeMS, s.DecodeMS)
		for what, n := range s.FlaggedTokens {
			flagged[what] += n
		}
	}
	out.FlaggedTokens = flagged
	if len(flagged) == 0 {
		out.FlaggedTokens = nil
	}
	return out
}

// trim takes out of s what was chosen behind the end of an answer of so many tokens, for rows that the server showed ahead: it is used by nobody.
// Of tokens without a record it can't be said what was noticed about them. Bytes were drawn all the same.
func trim(s *backends.DecodeStats, chosen, steps int) {
	unused := s.Tokens - chosen
	if unused <= 0 {
		return
	}
	s.Tokens = chosen
	if s.Amplifier != "" && s.Amplifier != "none" {
		s.Discarded += int64(unused)
	}
	s.FlaggedTokens = maps.Clone(s.FlaggedTokens) // the sidecar's
	kept := make([]sampler.Record, 0, len(s.Records))
	for i := range s.Records {
		if r := &s.Records[i]; r.Step < steps {
			kept = append(kept, *r)
		} else {
			forget(s, r)
		}
	}
	if s.Records != nil {
		s.Records = kept
	}
	s.FallbackTokens, s.Pipelined = min(s.FallbackTokens, chosen), min(s.Pipelined, chosen)
}

// forget takes a token out of s.
func forget(s *backends.DecodeStats, r *sampler.Record) {
	if r.Fallback {
		s.FallbackTokens--
	}
	if r.Pipelined {
		s.Pipelined--
	}
	for _, name := range r.Flags {
		if s.FlaggedTokens[name]--; s.FlaggedTokens[name] <= 0 {
			delete(s.FlaggedTokens, name)
		}
	}
}
