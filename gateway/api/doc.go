// Package api is the OpenAI wire format as the gateway speaks it: what a request body may hold, what replies and stream
// chunks look like, the error envelope and the event-stream writer. It knows no router and starts no goroutine.
//
// A request goes through [ReadBody], [Parse] and one of [Body.Chat] and [Body.Completion]; everything a client can get
// wrong about a request, short of what only the model's tokenizer knows, is found there and comes back as an *[Error].
//
//	body, err := api.Parse(raw)
//	call, err := body.Chat(defaults)
//
// [ChatReply] and [TextReply] reuse their chunks and belong to one request. A [Stream] may be used by several goroutines.
package api
