package api

import (
	"encoding/json"
	"math"

	"qr-gateway/backends"
)

// prompt takes a string, a list of token ids, or a list with one of either.
func (o object) prompt(req *backends.Request) error {
	raw, ok := o.get("prompt")
	if !ok {
		return Invalid("prompt", "prompt is missing; send a string or a list of token ids")
	}
	if kindOf(raw) == "list" {
		return listPrompt(raw, req)
	}
	return textPrompt(raw, req)
}

func textPrompt(raw json.RawMessage, req *backends.Request) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return wrongType("prompt", "a string or a list of token ids", raw)
	}
	if s == "" {
		return Invalid("prompt", "prompt is empty; send at least one character or token id")
	}
	req.Text = &s
	return nil
}

func listPrompt(raw json.RawMessage, req *backends.Request) error {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return wrongType("prompt", "a string or a list of token ids", raw)
	}
	if len(items) == 0 {
		return Invalid("prompt", "prompt is empty; send at least one character or token id")
	}
	kind := kindOf(items[0])
	if kind == "number" {
		return tokenPrompt(items, req)
	}
	if len(items) > 1 && (kind == "string" || kind == "list") {
		return unsupported("prompt", "prompt has %d prompts; this server takes one a request", len(items))
	}
	if kind == "string" {
		return textPrompt(items[0], req)
	}
	return nestedPrompt(items[0], req)
}

func nestedPrompt(raw json.RawMessage, req *backends.Request) error {
	var ids []json.RawMessage
	if err := json.Unmarshal(raw, &ids); err != nil {
		return wrongType("prompt", "a string or a list of token ids", raw)
	}
	if len(ids) == 0 {
		return Invalid("prompt", "prompt is empty; send at least one character or token id")
	}
	return tokenPrompt(ids, req)
}

func tokenPrompt(items []json.RawMessage, req *backends.Request) error {
	req.Tokens = make([]int32, len(items))
	for i, item := range items {
		if kindOf(item) != "number" {
			return wrongType("prompt", "a string or a list of token ids", item)
		}
		id, whole := wholeNumber(item)
		if !whole || id < 0 || id > math.MaxInt32 {
			return Invalid("prompt", "prompt[%d] is %s, which is no token id", i, quote(string(item)))
		}
		req.Tokens[i] = int32(id)
	}
	return nil
}
