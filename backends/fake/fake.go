// Package fake is a model without weights: for tests of everything above the engine, and for demos. Its answer is a
// function of the prompt, the seed and the step, so that any two runs of one request agree, on any machine.
//
// The vocabulary is the 256 bytes followed by some words; an answer is made of the words. [Config.Delay] gives it a
// speed, and [Deps.Step] lets a test hold it at any token or make it fail there. A [Model] is safe for concurrent use; it
// starts no goroutine.
package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"qr-gateway/backends"
)

// Config describes the model.
type Config struct {
	Model       string        // served id
	Description string        // shown in the model list
	Context     int           // tokens of prompt and answer together
	Workers     int           // requests at a time; more wait
	Delay       time.Duration // between tokens; 0 is none
}

// DefaultConfig is a small model at full speed.
func DefaultConfig() Config {
	return Config{Model: "fake", Description: "deterministic words, no weights", Context: 2048, Workers: 4}
}

// Validate checks the values.
func (c Config) Validate() error {
	switch {
	case c.Model == "":
		return errors.New("check fake model: model id is empty")
	case c.Context < 2:
		return fmt.Errorf("check fake model %s: context is %d; it takes 2 or more tokens", c.Model, c.Context)
	case c.Workers < 1:
		return fmt.Errorf("check fake model %s: workers is %d; it takes 1 or more", c.Model, c.Workers)
	case c.Delay < 0:
		return fmt.Errorf("check fake model %s: delay is %s; it takes 0 or more", c.Model, c.Delay)
	}
	return nil
}

// Deps are the hooks of tests. The zero value has none.
type Deps struct {
	// Step is called before each token, 0 being the first; what it returns as an error ends the run. It must return when ctx ends.
	Step func(ctx context.Context, id string, step int) error
}

// Model implements backends.Backend.
type Model struct {
	cfg   Config
	deps  Deps
	slots chan int // numbers of the free workers
	down  atomic.Pointer[string]
}

// New makes a model, ready at once.
func New(cfg Config, deps Deps) (*Model, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Model{cfg: cfg, deps: deps, slots: make(chan int, cfg.Workers)}
	for i := range cfg.Workers {
		m.slots <- i
	}
	return m, nil
}

// SetDown makes the model say that it isn't ready, for the reason given; "" brings it back. Runs under way go on.
func (m *Model) SetDown(reason string) { m.down.Store(&reason) }

// Info describes the model.
func (m *Model) Info() backends.Info {
	info := backends.Info{
		Model: m.cfg.Model, Backend: "fake", Description: m.cfg.Description, Ready: true, State: "ready",
		Context: m.cfg.Context, Workers: m.cfg.Workers, Busy: m.cfg.Workers - len(m.slots),
		Architecture: "fake", Memory: "none", Vocabulary: vocabulary(), Chat: true, Resumes: true,
	}
	if reason := m.down.Load(); reason != nil && *reason != "" {
		info.Ready, info.State, info.Reason = false, "failed", *reason
	}
	return info
}

// Prepare tokenises by bytes and known words.
func (m *Model) Prepare(ctx context.Context, req *backends.Request) (*backends.Prepared, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	tokens, err := promptTokens(req)
	if err != nil {
		return nil, err
	}
	room := m.cfg.Context - len(tokens)
	if room < 1 {
		return nil, backends.TooLong(len(tokens), m.cfg.Context)
	}
	limit := room
	if req.MaxTokens > 0 {
		limit = min(limit, req.MaxTokens)
	}
	return &backends.Prepared{Request: req, Tokens: tokens, MaxTokens: limit, Stops: req.Stop}, nil
}

func promptTokens(req *backends.Request) ([]int32, error) {
	switch {
	case req.Chat != nil:
		return chatTokens(req.Chat)
	case req.Text != nil:
		return tokenize(*req.Text), nil
	}
	for i, id := range req.Tokens {
		if id < 0 || int(id) >= vocabulary() {
			return nil, invalid("prompt", fmt.Sprintf("prompt[%d] is token %d, but the model has tokens 0 to %d", i, id, vocabulary()-1))
		}
	}
	return req.Tokens, nil
}

// chatTokens has a template that raises, as real ones do: a conversation that ends with the assistant.
func chatTokens(chat *backends.Chat) ([]int32, error) {
	var turns []struct{ Role, Content string }
	if err := json.Unmarshal(chat.Messages, &turns); err != nil {
		return nil, invalid("messages", "messages could not be read: "+err.Error())
	}
	var text string
	for _, t := range turns {
		text += t.Role + ": " + t.Content + "\n"
	}
	if len(turns) > 0 && turns[len(turns)-1].Role == "assistant" {
		return nil, invalid("messages", "the chat template raised: the last message must not be the assistant's")
	}
	return tokenize(text), nil
}

func invalid(param, message string) *backends.Error {
	return &backends.Error{Kind: backends.KindInvalid, Code: "invalid_value", Param: param, Message: message}
}

// Lost is what a run ends with when its engine dies; tests return it from Step.
func Lost() *backends.Error {
	return &backends.Error{
		Kind: backends.KindLost, Code: "engine_lost", Message: "the engine process died while it ran this request",
		Hint: "send the request again; the engine is being restarted",
	}
}
