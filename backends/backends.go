// Package backends holds what every engine has in common: the request as the gateway prepared it, the events that
// come back, usage, statistics and errors. An implementation lives in a folder of its own (llama, openai, fake).
//
// A request has two steps. Prepare checks and tokenises without taking a worker, so that a prompt that is too long or a
// template that raises is refused before anything is queued. Generate runs the prepared request; it may be called
// long after Prepare, and on another goroutine.
package backends

import (
	"context"
	"encoding/json"

	"qr-gateway/sampler"
)

// Backend is one served model on one engine. Implementations are safe for concurrent use.
type Backend interface {
	// Prepare renders, tokenises and counts. It returns a *Error for anything the client can mend.
	Prepare(ctx context.Context, req *Request) (*Prepared, error)
	// Generate runs p and calls emit with each event, in order, from one goroutine, until it returns. An error from emit
	// ends the run. When ctx ends, the worker is free again within one decode step and the error is ctx's.
	Generate(ctx context.Context, p *Prepared, emit func(Event) error) (*Result, error)
	// Info describes the model as it is now. It never blocks on the engine.
	Info() Info
}

// Request is one call, with every value checked by the gateway.
type Request struct {
	ID    string // for logs, unique
	Model string
	// Exactly one of Chat, Text and Tokens is set.
	Chat   *Chat
	Text   *string
	Tokens []int32
	// MaxTokens to generate; 0 means the rest of the context. More than the rest is not an error.
	MaxTokens   int
	Stop        []string
	IncludeStop bool
	Params      sampler.Params

	// Raw stands in the place of all above but ID and Model where the backend passes requests on ([Info].Raw): the client's body, a JSON object
	// whose form is checked, with Model as its model.
	Raw    json.RawMessage `json:",omitempty"`
	Path   string          `json:",omitempty"` // that Raw was sent to: chat/completions or completions
	Stream bool            `json:",omitempty"` // Raw asks for a stream
	// Sampled says that Raw's tokens are chosen by Params, which the gateway has checked; Raw has none of our keys then. Only for a backend with
	// [Info].Samples. A raw request without it is passed on as it is, and Params say nothing.
	Sampled bool `json:",omitempty"`
}

// Chat is a conversation for the model's own template.
type Chat struct {
	Messages json.RawMessage // OpenAI messages, an array
	Thinking bool            // enable_thinking for the template
	Kwargs   json.RawMessage `json:",omitempty"` // further template arguments: an object, or nil
}

// Prepared is a request ready to be queued.
type Prepared struct {
	Request    *Request
	Tokens     []int32  // the prompt
	MaxTokens  int      // as it will be run: never more than the context has room for
	Stops      []string // the request's and the template's
	ChatFormat []byte   // opaque to everyone but the backend
	// Estimate is the number of tokens that the prompt may have, where the backend can't count them.
	Estimate int `json:",omitempty"`
	// Delivered are tokens of the answer that the client has from a run that was lost. A backend that can ([Info].Resumes) takes the answer
	// up behind them: it sends what follows, and counts them among the tokens of the answer.
	Delivered []int32 `json:",omitempty"`
}

// Cost is the number of tokens the request may take, prompt and answer together; the queue weighs by it.
func (p *Prepared) Cost() int { return len(p.Tokens) + p.Estimate + p.MaxTokens }

// Event is a piece of the answer. The zero fields of an event carry nothing.
type Event struct {
	Started   *Started
	Content   string // whole UTF-8
	Reasoning string // whole UTF-8
	Tokens    []int32
	// Raw is one chunk of a stream, or the whole reply, in the form in which the client gets it. Only a backend with [Info].Raw sends it, and
	// nothing else but Started.
	Raw json.RawMessage `json:",omitempty"`
}

// Started says that a worker took the request.
type Started struct {
	Worker       int
	PromptTokens int
	CachedTokens int
	// Bytes of text that the tokens of [Prepared.Delivered] have made. The client may have a little more of it: what was held back is sent when
	// a run ends, and its end may be what was lost.
	Content, Reasoning int
}

// Reasons a generation ends with, as OpenAI names them.
const (
	ReasonStop   = "stop"
	ReasonLength = "length"
)

// Result is how a generation ended.
type Result struct {
	Reason string
	Usage  Usage
	Stats  DecodeStats
	// Last is the last chunk of a stream, or the whole reply, of a request that is [Request].Sampled, and was no event. The gateway adds what the
	// client sees of Usage and Stats.
	Last json.RawMessage `json:",omitempty"`
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int
	CompletionTokens int
	CachedTokens     int
}

// DecodeStats is what the client sees as the `qr` object.
type DecodeStats struct {
	Decoder       string   `json:"decoder"`                 // plain or lookahead
	Curve         string   `json:"curve,omitempty"`         // lookahead: article, crossfade, seed
	Mode          string   `json:"lookahead,omitempty"`     // lazy, full, full_inverse, bounded
	Choice        string   `json:"choice,omitempty"`        // sample or argmax
	AlphaMin      *float64 `json:"alpha_min,omitempty"`     // smallest alpha used
	AlphaMax      *float64 `json:"alpha_max,omitempty"`     // largest alpha used
	Peeks         int      `json:"peeks"`                   // candidates evaluated
	PeeksPerToken float64  `json:"peeks_per_token"`         //
	Preset        string   `json:"preset,omitempty"`        // that the parameters began with
	Strategy      string   `json:"strategy,omitempty"`      // that set the temperature
	EntropySource string   `json:"entropy_source"`          // as asked for; seed, or none where nothing was left to chance
	Policy        string   `json:"policy,omitempty"`        // of the source: strict, fallback or observe
	Amplifier     string   `json:"amplifier,omitempty"`     // as asked for; seeded, or none
	USource       string   `json:"u_source"`                // the same, under its first name
	EntropyBytes  int64    `json:"entropy_bytes,omitempty"` //

	Tokens         int              `json:"tokens"`                      // chosen, an end-of-text token among them
	FallbackTokens int              `json:"fallback_tokens"`             // whose number a second choice made
	FlaggedTokens  map[string]int   `json:"flagged_tokens,omitempty"`    // whose bytes something was noticed about, by what
	Pipelined      int              `json:"pipelined,omitempty"`         // whose bytes were asked for before the logits existed
	Discarded      int64            `json:"discarded,omitempty"`         // draws that were asked for and not used
	Native         int              `json:"native_tokens,omitempty"`     // that the engine chose itself, or nobody is known to have chosen
	Mismatched     int              `json:"mismatched_tokens,omitempty"` // that are others than were chosen
	Calibration    string           `json:"calibration,omitempty"`       // hash of what the bytes were measured to be
	Records        []sampler.Record `json:"records,omitempty"`           // of the newest tokens, where qr_diagnostic_mode asks for them
	RecordsDropped int              `json:"records_dropped,omitempty"`   // tokens before those
	ContinuedAt    []int            `json:"continued_at,omitempty"`      // tokens that were there, each time another worker took the answer up; counts of draws are those since
	Choices        []DecodeStats    `json:"choices,omitempty"`           // of each choice, where there are several: all else is of them together
	Thought        *Thought         `json:"thought,omitempty"`           // with the amplifier zscore_thought
	PromptMS       float64          `json:"prompt_ms"`                   // time to the first row
	DecodeMS       float64          `json:"decode_ms"`                   // from the first row to the end
	Worker         int              `json:"worker"`                      //
	Replica        string           `json:"replica,omitempty"`           // that made the answer, where the model has several
	Tries          int              `json:"tries,omitempty"`             // replicas that had the request, if it was not the first that answered
}

// Thought is what all bytes of an answer make together, as if they were one block. Those of a second choice are not in it.
type Thought struct {
	Bytes int     `json:"bytes"`
	Mean  float64 `json:"mean"` // of a byte
	Bias  float64 `json:"bias"` // the mean over that of the source
	Z     float64 `json:"z"`
	U     float64 `json:"u"`
}

// Info describes a served model.
type Info struct {
	Model        string // served id
	Backend      string // llama, openai, fake
	Ready        bool   // has decoded a token since it (re)started
	State        string // starting, ready, restarting, failed, unreachable
	Reason       string // why not ready, in words
	Context      int    // tokens per request; 0 where the backend doesn't know
	Workers      int
	Busy         int
	Description  string
	Architecture string
	Memory       string
	Vocabulary   int
	Chat         bool
	SizeBytes    int64
	Raw          bool          // passes requests on as they are: see [Request].Raw
	PassParams   bool          // with Raw: takes the qr_ keys of a request too
	Samples      bool          // with Raw: chooses tokens by parameters, see [Request].Sampled
	Unsampled    string        // with Samples: why it can't do so now, in words; empty: it can
	Load         float64       // what the engine says it has to do, Busy among it, in shares of Workers; 0: it says nothing
	Resumes      bool          // takes up an answer that another run began
	Replicas     []ReplicaInfo // of a model that has several
}

// ReplicaInfo describes one of several backends of a model.
type ReplicaInfo struct {
	Name     string
	Backend  string
	Ready    bool   // takes requests now
	State    string // as in [Info], or refused (serves something else than the others), paused (it failed) or trying
	Reason   string
	InFlight int
	Workers  int

	Unsampled string // as in [Info]
}
