// Package vllmtest has stand-ins for tests: of a vLLM server's HTTP side, with or without the plugin, and of the sidecar that it asks. Both are
// small, and wrong on demand.
//
//	side := vllmtest.NewSampler()
//	far := vllmtest.NewServer(t, vllmtest.Options{Model: "m", Plugin: true}, side)
package vllmtest

import (
	"context"
	"errors"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/sampler"
)

// Vocabulary is how many tokens there are. 0 is the end of the text.
const Vocabulary = 1000

// Plugin is what asks for tokens within the server.
type Plugin interface {
	// Choose asks for a token of the request with that name and those parameters. last says that the text is to end with it. ok is false where
	// the server has to choose.
	Choose(rid, cfg string, step int, last bool) (token int32, ok bool)
}

// Move is what happens at one step of a request. The zero value is that the token is chosen and taken.
type Move struct {
	Status choice.Status   // Stop ends the text; with Native and Illegal the server chooses
	Err    *backends.Error // with Stop
	Deaf   bool            // the server goes on although it was told to stop
	Unsaid bool            // the sidecar hears nothing of the step, and the server chooses
	Void   bool            // another token was chosen first, for a row that came to nothing
	Wrong  bool            // the server takes another token than was chosen, but at the end
}

// Sampler imitates the sidecar. It is safe for concurrent use.
type Sampler struct {
	mu      sync.Mutex // guards all below
	script  func(rid string, step int) Move
	refuse  error
	session string
	trails  map[string]*trail
	ended   []string // rids of requests that have, in their order
}

// NewSampler makes a sidecar to which nothing happens.
func NewSampler() *Sampler {
	return &Sampler{session: "first", trails: map[string]*trail{}, script: func(string, int) Move { return Move{} }}
}

// Script sets what happens at each step from now on.
func (s *Sampler) Script(f func(rid string, step int) Move) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = f
}

// Refuse makes Follow fail; nil ends that.
func (s *Sampler) Refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

// Restart makes the engine another one. Empty: none is connected.
func (s *Sampler) Restart(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = session
}

// Live are the requests that are followed now, and Ended those that are no more.
func (s *Sampler) Live() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.trails)
}

// Ended are the rids of the requests that have ended, in their order.
func (s *Sampler) Ended() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ended)
}

// Engines implements [vllm.Choices].
func (s *Sampler) Engines() []choice.Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == "" {
		return nil
	}
	return []choice.Engine{{Session: s.session, VLLM: "0.32.0", Runner: "v1", Rows: "full", Vocab: Vocabulary}}
}

// Follow implements [vllm.Choices].
func (s *Sampler) Follow(_ context.Context, rid string, from int) (vllm.Trail, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return nil, s.refuse
	}
	if s.trails[rid] != nil || slices.Contains(s.ended, rid) || from != 0 {
		return nil, errors.New("request " + rid + " is known already")
	}
	t := &trail{s: s, rid: rid, made: make(chan choice.Choice, 4096), done: make(chan struct{})}
	s.trails[rid] = t
	return t, nil
}

// Choose implements [Plugin].
func (s *Sampler) Choose(rid, cfg string, step int, last bool) (token int32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, t := s.script(rid, step), s.trails[rid]
	if m.Unsaid || t == nil {
		return 0, false
	}
	c := choice.Choice{Step: step, Token: Chosen(rid, step), Status: m.Status, Err: m.Err, Session: s.session}
	if last {
		c.Token = 0
	}
	if m.Status != choice.Token {
		c.Token = -1
	}
	if m.Void {
		void := c
		void.Token++
		t.made <- void
		c.Void = 1
	}
	t.made <- c
	if m.Status == choice.Token {
		t.count(&c, cfg)
	}
	switch {
	case m.Status == choice.Stop:
		return 0, !m.Deaf
	case m.Status != choice.Token:
		return 0, false
	case m.Wrong && !last:
		return c.Token + 1, true
	}
	return c.Token, true
}

// Chosen is the token that the sidecar chooses, if nothing else was told to happen.
func Chosen(rid string, step int) int32 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, rid+"/"+strconv.Itoa(step))
	return int32(h.Sum32()%(Vocabulary/2)) + 1
}

// trail implements [vllm.Trail].
type trail struct {
	s    *Sampler
	rid  string
	made chan choice.Choice
	done chan struct{} // closed by Finish

	tokens  int // guarded by the sampler's mutex, and so are these
	flagged map[string]int
	records []sampler.Record
}

// Flag is what is noticed about the bytes of every token whose records are asked for.
const Flag = "echo"

// count accounts for a token.
func (t *trail) count(c *choice.Choice, cfg string) {
	t.tokens++
	if !strings.Contains(cfg, "qr_diagnostic_mode") {
		return
	}
	if t.flagged == nil {
		t.flagged = map[string]int{}
	}
	t.flagged[Flag]++
	t.records = append(t.records, sampler.Record{Step: c.Step, Token: c.Token, Flags: []string{Flag}, Fallback: true, Pipelined: true})
}

func (t *trail) Next(ctx context.Context) (choice.Choice, error) {
	select {
	case c := <-t.made:
		return c, nil
	case <-t.done:
		return choice.Choice{}, io.EOF
	case <-ctx.Done():
		return choice.Choice{}, ctx.Err()
	}
}

func (t *trail) Finish(context.Context) (*backends.DecodeStats, error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.s.trails[t.rid] != t {
		return nil, errors.New("request " + t.rid + " has ended already")
	}
	delete(t.s.trails, t.rid)
	t.s.ended = append(t.s.ended, t.rid)
	close(t.done)
	return &backends.DecodeStats{
		Decoder: "plain", Strategy: "fixed", EntropySource: "system", Policy: "strict", Amplifier: "zscore_mean", USource: "zscore_mean",
		Tokens: t.tokens, EntropyBytes: int64(16 * t.tokens), FlaggedTokens: t.flagged, Records: t.records,
		FallbackTokens: len(t.records), Pipelined: len(t.records),
	}, nil
}
