package vllm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/sampler"
)

// sampling is whether the server's tokens can be chosen. It is never changed.
type sampling struct {
	reason  string // why they can't, in words for everybody; empty: they can
	session string // of the engine that was seen to ask; empty: not known
}

const (
	probeTime  = 15 * time.Second // for one probe
	firstPause = time.Second      // after one that failed, and twice as long after each further one
	mostPause  = 30 * time.Second
	probeSeed  = 1 // nothing is drawn from a source
)

// prober checks what package openai doesn't. Its method check is called by one goroutine.
type prober struct {
	b     *Backend
	pause time.Duration
	next  time.Time // for a probe
	quiet bool      // it was logged that the load is not told
}

// check looks at a server that lists its models: is its engine alive, what has it to do, and can its tokens be chosen? Only the first makes it
// unfit for all requests.
func (p *prober) check(ctx context.Context) error {
	if err := p.alive(ctx); err != nil {
		return err
	}
	p.weigh(ctx)
	if p.due() {
		p.probe(ctx)
	}
	return ctx.Err()
}

// alive asks for the engine's health, which the list of models says nothing of.
func (p *prober) alive(ctx context.Context) error {
	resp, err := p.get(ctx, "../health")
	if err != nil {
		return fmt.Errorf("it does not tell its health: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("its engine is not well: /health answers with status %d", resp.StatusCode)
	}
	return nil
}

// get is within the time that a check may take.
func (p *prober) get(ctx context.Context, path string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, p.b.cfg.Health.Timeout)
	resp, err := p.b.up.Get(ctx, path)
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &body{resp.Body, cancel}
	return resp, nil
}

// body ends its context when it is closed.
type body struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// weigh reads the load. A server that doesn't tell it is picked by what it has from here.
func (p *prober) weigh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.b.cfg.Health.Timeout)
	defer cancel()
	now, err := p.b.readLoad(ctx)
	p.b.load.Store(now)
	if err != nil && !p.quiet {
		p.b.log.InfoContext(ctx, "upstream does not tell its load", "upstream", p.b.cfg, "error", err)
	}
	p.quiet = err != nil
}

// due says that the server is to be probed now.
func (p *prober) due() bool {
	if p.b.choices == nil || !p.b.cfg.Probe {
		return false
	}
	s := p.b.sampling.Load()
	if doubt := p.b.doubt.Swap(false); s.reason == "" && (doubt || p.gone(s.session)) {
		p.pause, p.next = 0, time.Time{}
		return true
	}
	return s.reason != "" && !time.Now().Before(p.next)
}

// gone says that the engine that was seen to ask is connected no more: it, or the sidecar, has been started anew.
func (p *prober) gone(session string) bool {
	return session != "" && !slices.ContainsFunc(p.b.choices.Engines(), func(e choice.Engine) bool { return e.Session == session })
}

// probe finds out whether the server's tokens can be chosen.
func (p *prober) probe(ctx context.Context) {
	p.b.probes.Add(1)
	timed, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	session, err := p.try(timed)
	if ctx.Err() != nil {
		return
	}
	found := &sampling{session: session}
	if err != nil {
		found.reason = err.Error()
		p.pause = min(max(2*p.pause, firstPause), mostPause)
		p.next = time.Now().Add(p.pause)
	}
	was := p.b.sampling.Swap(found)
	switch {
	case found.reason == "" && (was.reason != "" || was.session != session):
		p.b.log.InfoContext(ctx, "upstream samples", "upstream", p.b.cfg, "engine", p.engine(session))
	case found.reason != was.reason:
		p.b.log.WarnContext(ctx, "upstream does not sample; it serves requests without qr_ parameters", "upstream", p.b.cfg,
			"version", p.version(ctx), "reason", found.reason)
	}
}

// engine describes what is connected.
func (p *prober) engine(session string) string {
	for _, e := range p.b.choices.Engines() {
		if e.Session == session {
			return fmt.Sprintf("vLLM %s, runner %s, %s rows of %d", e.VLLM, e.Runner, e.Rows, e.Vocab)
		}
	}
	return session
}

// version asks the server for its own.
func (p *prober) version(ctx context.Context) string {
	var v struct{ Version string }
	resp, err := p.get(ctx, "../version")
	if err != nil {
		return "unknown"
	}
	defer resp.Body.Close()
	if json.NewDecoder(io.LimitReader(resp.Body, 4<<10)).Decode(&v) != nil || v.Version == "" {
		return "unknown"
	}
	return v.Version
}

const probeBody = `{"model":"","prompt":"Hello","max_tokens":1,"logprobs":2}`

// try asks for one token. The error is why tokens can't be chosen, in words for everybody.
func (p *prober) try(ctx context.Context) (session string, err error) {
	params := sampler.Defaults()
	params.Seed = new(int64(probeSeed))
	req := &backends.Request{ID: newRID(), Model: p.b.cfg.Model, Raw: json.RawMessage(probeBody), Path: "completions", Params: params}
	r, err := p.b.newRun(req, []part{{params: params}})
	if err != nil {
		return "", err
	}
	c := &call{b: p.b, part: &r.parts[0], rid: req.ID, dress: &r.dress, probe: true}
	res := c.run(ctx, req, false)
	if c.ledger != nil {
		session, _ = c.ledger.from()
	}
	switch {
	case errors.Is(res.err, context.DeadlineExceeded):
		return "", fmt.Errorf("a probe was not answered within %s", probeTime)
	case res.err != nil:
		return "", fmt.Errorf("a probe failed: %w", res.err)
	case c.mismatch > 0:
		return "", errors.New("a probe's token was another than the sidecar chose")
	case c.native > 0 && session == "":
		return "", errors.New("the sidecar heard nothing of a probe: start vLLM with --logits-processors qr_vllm:Processor, and QR_SIDECAR set to the sidecar's socket")
	case c.native > 0:
		return "", errors.New("the sidecar left a probe's token to vLLM")
	}
	p.warn(ctx, res.last)
	return session, nil
}

// leastLogprob is what vLLM sends in the place of -Inf.
const leastLogprob = -9999

// warn tells of a setting that makes log-probabilities those of the choice, which is certain, and not the model's.
func (p *prober) warn(ctx context.Context, reply *chunk) {
	var c struct {
		Logprobs struct {
			Top []map[string]*float64 `json:"top_logprobs"`
		}
	}
	if len(reply.choices) == 0 || json.Unmarshal(reply.choices[0], &c) != nil || len(c.Logprobs.Top) == 0 {
		return
	}
	for _, v := range c.Logprobs.Top[0] {
		if v == nil || *v <= leastLogprob {
			p.b.log.WarnContext(ctx, "log-probabilities are those after the choice; start vLLM with --logprobs-mode raw_logprobs", "upstream", p.b.cfg)
			return
		}
	}
}
