package api

import (
	"slices"

	"qr-gateway/backends"
)

// Head is what a reply and all its chunks have in common.
type Head struct {
	ID          string // chatcmpl-... or cmpl-...
	Model       string
	Created     int64 // Unix seconds
	Fingerprint string
	Task        string // that the reply serves, or empty
	Record      string // address of the answer's record; empty where none is kept
	Brief       bool   // the records of tokens are left out: the client can't take long lines, and finds them in the answer's record
}

// Usage counts tokens as OpenAI does.
type Usage struct {
	PromptTokens     int           `json:"prompt_tokens"`
	CompletionTokens int           `json:"completion_tokens"`
	TotalTokens      int           `json:"total_tokens"`
	PromptDetails    promptDetails `json:"prompt_tokens_details"`
	QR               Summary       `json:"qr"`
}

// Summary is the short form of a reply's qr object. It stands in the usage, which is all that some clients keep and show.
type Summary struct {
	Decoder        string   `json:"decoder"`
	Choice         string   `json:"choice,omitempty"`
	Curve          string   `json:"curve,omitempty"`
	AlphaMin       *float64 `json:"alpha_min,omitempty"`
	AlphaMax       *float64 `json:"alpha_max,omitempty"`
	PeeksPerToken  float64  `json:"peeks_per_token,omitempty"`
	Tokens         int      `json:"tokens"`
	Preset         string   `json:"preset,omitempty"`
	Strategy       string   `json:"strategy,omitempty"`
	EntropySource  string   `json:"entropy_source"`
	Policy         string   `json:"policy,omitempty"`
	Amplifier      string   `json:"amplifier,omitempty"`
	EntropyBytes   int64    `json:"entropy_bytes,omitempty"`
	FallbackTokens int      `json:"fallback_tokens,omitempty"`
	FlaggedTokens  int      `json:"flagged_tokens,omitempty"` // findings, of all kinds together
	ContinuedAt    []int    `json:"continued_at,omitempty"`
	Task           string   `json:"task,omitempty"`
	Record         string   `json:"record,omitempty"` // address of the answer's record
}

func (h *Head) summary(s *backends.DecodeStats) Summary {
	out := Summary{
		Decoder: s.Decoder, Choice: s.Choice, Curve: s.Curve, AlphaMin: s.AlphaMin, AlphaMax: s.AlphaMax, PeeksPerToken: s.PeeksPerToken,
		Tokens: s.Tokens, Preset: s.Preset, Strategy: s.Strategy, EntropySource: s.EntropySource, Policy: s.Policy, Amplifier: s.Amplifier,
		EntropyBytes: s.EntropyBytes, FallbackTokens: s.FallbackTokens, ContinuedAt: s.ContinuedAt, Task: h.Task, Record: h.Record,
	}
	for _, n := range s.FlaggedTokens {
		out.FlaggedTokens += n
	}
	return out
}

// stats are what the reply's qr object says.
func (h *Head) stats(s *backends.DecodeStats) *backends.DecodeStats {
	if !h.Brief || len(s.Records)+len(s.Choices) == 0 {
		return s
	}
	brief := *s
	brief.RecordsDropped += len(brief.Records)
	brief.Records, brief.Choices = nil, slices.Clone(s.Choices)
	for i := range brief.Choices {
		brief.Choices[i] = *h.stats(&brief.Choices[i])
	}
	return &brief
}

type promptDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

// Usage is what a reply says of its tokens.
func (h *Head) Usage(r *backends.Result) *Usage {
	u := r.Usage
	return &Usage{
		PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens, TotalTokens: u.PromptTokens + u.CompletionTokens,
		PromptDetails: promptDetails{CachedTokens: u.CachedTokens}, QR: h.summary(&r.Stats),
	}
}

// frame is the outside of every reply and chunk; T is its choice.
type frame[T any] struct {
	ID          string                `json:"id"`
	Object      string                `json:"object"`
	Created     int64                 `json:"created"`
	Model       string                `json:"model"`
	Fingerprint string                `json:"system_fingerprint"`
	Choices     []T                   `json:"choices"`
	Usage       *Usage                `json:"usage,omitempty"`
	QR          *backends.DecodeStats `json:"qr,omitempty"`
}

func newFrame[T any](h *Head, object string, choices ...T) frame[T] {
	return frame[T]{ID: h.ID, Object: object, Created: h.Created, Model: h.Model, Fingerprint: h.Fingerprint, Choices: choices}
}

// last completes the chunk that carries finish_reason, and adds the usage chunk where it was asked for.
func (f *frame[T]) last(h *Head, r *backends.Result, includeUsage bool) []any {
	if !includeUsage {
		f.QR = h.stats(&r.Stats)
		return []any{f}
	}
	usage := *f
	usage.Choices, usage.Usage, usage.QR = []T{}, h.Usage(r), h.stats(&r.Stats)
	return []any{f, &usage}
}

// finish maps a reason to one of OpenAI's.
func finish(reason string) *string {
	out := backends.ReasonStop
	if reason == backends.ReasonLength {
		out = backends.ReasonLength
	}
	return &out
}

type chatMessage struct {
	Role             string  `json:"role"`
	Content          string  `json:"content"`
	Refusal          *string `json:"refusal"`
	ReasoningContent string  `json:"reasoning_content,omitempty"`
}

type chatChoice struct {
	Index        int         `json:"index"`
	Message      chatMessage `json:"message"`
	Logprobs     *struct{}   `json:"logprobs"`
	FinishReason *string     `json:"finish_reason"`
}

type delta struct {
	Role             string  `json:"role,omitempty"`
	Content          *string `json:"content,omitempty"`
	ReasoningContent *string `json:"reasoning_content,omitempty"`
}

type deltaChoice struct {
	Index        int     `json:"index"`
	Delta        delta   `json:"delta"`
	FinishReason *string `json:"finish_reason"`
}

// ChatReply makes the reply of /v1/chat/completions, whole or in chunks. What its methods return is valid until the next call.
type ChatReply struct {
	head               *Head
	chunk              frame[deltaChoice]
	content, reasoning string
}

// NewChatReply starts a reply. What h says of the end of the reply may be filled in until then.
func NewChatReply(h *Head) *ChatReply {
	return &ChatReply{head: h, chunk: newFrame(h, "chat.completion.chunk", deltaChoice{})}
}

// First is the chunk before all others, with the role.
func (r *ChatReply) First() any {
	r.content = ""
	r.chunk.Choices[0].Delta = delta{Role: "assistant", Content: &r.content}
	return &r.chunk
}

// Delta is the chunk for a piece of the answer. It doesn't allocate.
func (r *ChatReply) Delta(e backends.Event) any {
	r.content, r.reasoning = e.Content, e.Reasoning
	d := &r.chunk.Choices[0].Delta
	*d = delta{}
	if e.Content != "" {
		d.Content = &r.content
	}
	if e.Reasoning != "" {
		d.ReasoningContent = &r.reasoning
	}
	return &r.chunk
}

// End makes the last chunks.
func (r *ChatReply) End(res *backends.Result, includeUsage bool) []any {
	r.chunk.Choices[0] = deltaChoice{FinishReason: finish(res.Reason)}
	return r.chunk.last(r.head, res, includeUsage)
}

// Whole is the reply in one piece.
func (r *ChatReply) Whole(content, reasoning string, res *backends.Result) any {
	msg := chatMessage{Role: "assistant", Content: content, ReasoningContent: reasoning}
	f := newFrame(r.head, "chat.completion", chatChoice{Message: msg, FinishReason: finish(res.Reason)})
	f.Usage, f.QR = r.head.Usage(res), r.head.stats(&res.Stats)
	return &f
}

type textChoice struct {
	Index        int       `json:"index"`
	Text         string    `json:"text"`
	Logprobs     *struct{} `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
}

// TextReply makes the reply of /v1/completions, whole or in chunks. What its methods return is valid until the next call.
type TextReply struct {
	head  *Head
	chunk frame[textChoice]
}

// NewTextReply starts a reply. What h says of the end of the reply may be filled in until then.
func NewTextReply(h *Head) *TextReply {
	return &TextReply{head: h, chunk: newFrame(h, "text_completion", textChoice{})}
}

// First is nil: a text has no role to announce.
func (r *TextReply) First() any { return nil }

// Delta is the chunk for a piece of the answer. Reasoning is text like any other here.
func (r *TextReply) Delta(e backends.Event) any {
	r.chunk.Choices[0].Text = e.Reasoning + e.Content
	return &r.chunk
}

// End makes the last chunks.
func (r *TextReply) End(res *backends.Result, includeUsage bool) []any {
	r.chunk.Choices[0] = textChoice{FinishReason: finish(res.Reason)}
	return r.chunk.last(r.head, res, includeUsage)
}

// Whole is the reply in one piece.
func (r *TextReply) Whole(content, reasoning string, res *backends.Result) any {
	f := newFrame(r.head, "text_completion", textChoice{Text: reasoning + content, FinishReason: finish(res.Reason)})
	f.Usage, f.QR = r.head.Usage(res), r.head.stats(&res.Stats)
	return &f
}
