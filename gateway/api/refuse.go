package api

import (
	"encoding/json"
	"strconv"
)

// rule names a field that OpenAI knows and this server can't honour yet. Values that ask for nothing are let through:
// many clients send every field with its default.
type rule struct {
	key      string
	harmless func(json.RawMessage) bool
	takes    string // the values let through, for the message
}

func commonRules() []rule {
	return []rule{
		{"n", isNumber(1), "1"},
		{"response_format", isTextFormat, `{"type": "text"}`},
	}
}

func chatRules() []rule {
	return append([]rule{
		{"logprobs", isFalse, "false"},
		{"top_logprobs", isNumber(0), "0"},
		// A model that is offered tools may leave them alone, and many clients offer some with every request: only a call that
		// is asked for can't be had.
		{"tool_choice", isLenient, `"auto" or "none": no tool is called yet`},
		{"function_call", isLenient, `"auto" or "none": no function is called yet`},
		{"modalities", isTextOnly, `["text"]`},
	}, commonRules()...)
}

func completionRules() []rule {
	return append([]rule{
		{"logprobs", isFalse, "null"},
		{"echo", isFalse, "false"},
		{"suffix", isBlank, "null"},
		{"best_of", isNumber(1), "1"},
	}, commonRules()...)
}

// refuse names the first field that asks for something not supported: better than an answer that silently ignores it.
func (o object) refuse(rules []rule) error {
	for _, r := range rules {
		raw, ok := o.get(r.key)
		if ok && !r.harmless(raw) {
			return unsupported(r.key, "%s is not supported yet; leave it out or send %s", r.key, r.takes)
		}
	}
	return nil
}

func isLenient(raw json.RawMessage) bool { return string(raw) == `"auto"` || string(raw) == `"none"` }

func isFalse(raw json.RawMessage) bool { return string(raw) == "false" }

func isNumber(want float64) func(json.RawMessage) bool {
	return func(raw json.RawMessage) bool {
		f, err := strconv.ParseFloat(string(raw), 64)
		return err == nil && f == want
	}
}

func isBlank(raw json.RawMessage) bool { return string(raw) == `""` }

func isTextFormat(raw json.RawMessage) bool {
	var format struct{ Type string }
	return json.Unmarshal(raw, &format) == nil && format.Type == "text"
}

func isTextOnly(raw json.RawMessage) bool {
	var kinds []string
	if json.Unmarshal(raw, &kinds) != nil {
		return false
	}
	for _, k := range kinds {
		if k != "text" {
			return false
		}
	}
	return true
}
