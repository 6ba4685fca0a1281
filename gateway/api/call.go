package api

import (
	"encoding/json"
	"math"
	"slices"

	"qr-gateway/backends"
	"qr-gateway/sampler"
)

// Limits of the request, in the units their names say.
const (
	// CompletionMaxTokens is what /v1/completions generates when the request has no max_tokens, as OpenAI documents it.
	// A chat without max_tokens may use the rest of the context.
	CompletionMaxTokens = 16

	maxStops     = 16
	maxStopBytes = 256
)

// Call is a checked request with what only the edge needs to know of it.
type Call struct {
	Request      *backends.Request
	Stream       bool
	IncludeUsage bool              // a usage chunk ends the stream
	Given        []sampler.Setting // parameters that the request itself gave, as they are in effect
}

// Chat reads the body of /v1/chat/completions. defaults are the model's parameters.
func (b *Body) Chat(defaults sampler.Params) (*Call, error) {
	call, err := b.call(chatRules(), defaults)
	if err != nil {
		return nil, err
	}
	messages, err := b.fields.messages()
	if err != nil {
		return nil, err
	}
	chat := &backends.Chat{Messages: messages}
	if err := b.fields.template(chat); err != nil {
		return nil, err
	}
	call.Request.Chat = chat
	return call, nil
}

// Completion reads the body of /v1/completions. defaults are the model's parameters.
func (b *Body) Completion(defaults sampler.Params) (*Call, error) {
	call, err := b.call(completionRules(), defaults)
	if err != nil {
		return nil, err
	}
	if call.Request.MaxTokens == 0 {
		call.Request.MaxTokens = CompletionMaxTokens
	}
	if err := b.fields.prompt(call.Request); err != nil {
		return nil, err
	}
	return call, nil
}

// call reads what both requests have in common.
func (b *Body) call(rules []rule, defaults sampler.Params) (*Call, error) {
	model, err := b.Model()
	if err != nil {
		return nil, err
	}
	if err := b.fields.refuse(rules); err != nil {
		return nil, err
	}
	params, keys, err := b.params(defaults)
	if err != nil {
		return nil, err
	}
	call := &Call{Request: &backends.Request{Model: model, Params: params}, Given: params.Settings(keys)}
	for _, read := range []func(*Call) error{b.fields.limits, b.fields.stops, b.fields.streaming} {
		if err := read(call); err != nil {
			return nil, err
		}
	}
	return call, nil
}

// limits prefers max_completion_tokens, the newer of two names for one thing.
func (o object) limits(call *Call) error {
	for _, key := range []string{"max_completion_tokens", "max_tokens"} {
		n, ok, err := o.integer(key, 1, math.MaxInt32)
		if err != nil {
			return err
		}
		if ok && call.Request.MaxTokens == 0 {
			call.Request.MaxTokens = int(n)
		}
	}
	return nil
}

func (o object) stops(call *Call) error {
	stops, err := o.stopList()
	if err != nil {
		return err
	}
	// Forms in which people type a list, and leave its last entry empty, send empty ones.
	stops = slices.DeleteFunc(stops, func(s string) bool { return s == "" })
	if len(stops) > maxStops {
		return Invalid("stop", "stop has %d strings; it takes up to %d", len(stops), maxStops)
	}
	for i, s := range stops {
		if len(s) > maxStopBytes {
			return Invalid("stop", "stop[%d] has %d bytes; it takes 1 to %d", i, len(s), maxStopBytes)
		}
	}
	call.Request.Stop = stops
	call.Request.IncludeStop, _, err = o.boolean("include_stop_str_in_output")
	return err
}

func (o object) stopList() ([]string, error) {
	raw, ok := o.get("stop")
	if !ok {
		return nil, nil
	}
	var stops []string
	if kindOf(raw) == "string" {
		stops = make([]string, 1)
		if err := json.Unmarshal(raw, &stops[0]); err != nil {
			return nil, wrongType("stop", "a string or a list of strings", raw)
		}
		return stops, nil
	}
	items, _, err := o.list("stop")
	if err != nil {
		return nil, wrongType("stop", "a string or a list of strings", raw)
	}
	for _, item := range items {
		if kindOf(item) != "string" {
			return nil, wrongType("stop", "a string or a list of strings", item)
		}
	}
	return stops, json.Unmarshal(raw, &stops)
}

func (o object) streaming(call *Call) error {
	var err error
	if call.Stream, _, err = o.boolean("stream"); err != nil {
		return err
	}
	options, ok, err := o.object("stream_options")
	if err != nil || !ok {
		return err
	}
	if !call.Stream {
		return Invalid("stream_options", "stream_options is only for stream: true")
	}
	call.IncludeUsage, _, err = options.boolean("include_usage")
	return err
}

// template reads what the chat template is told.
func (o object) template(chat *backends.Chat) error {
	top, topSet, err := o.boolean("enable_thinking")
	if err != nil {
		return err
	}
	chat.Thinking = top
	kwargs, ok, err := o.object("chat_template_kwargs")
	if err != nil || !ok {
		return err
	}
	inner, innerSet, err := kwargs.boolean("enable_thinking")
	if err != nil {
		return err
	}
	if topSet && innerSet && top != inner {
		return Invalid("enable_thinking", "enable_thinking is %t at the top level and %t in chat_template_kwargs; give it once", top, inner)
	}
	chat.Thinking = top || inner
	delete(kwargs, "enable_thinking")
	if len(kwargs) == 0 {
		return nil
	}
	chat.Kwargs, err = encode(kwargs)
	return err
}
