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
	mostPause  = 5 * time.Second  // a probe is one token, and none where the sidecar is away
	probeSeed  = 1                // nothing is drawn from a source
)

// prober checks what package openai doesn't. Its method check is called by one goroutine, which never waits for the model but at the very first;
// its method run is another, which probes.
type prober struct {
	b      *Backend
	wanted chan struct{} // has a value when the server was found well
	known  chan struct{} // closed when the first verdict is there

	quiet  bool // of check: it was logged that the load is not told
	waited bool // of check: it has waited for the first verdict

	pause time.Duration // of run, and so is all below
	next  time.Time     // for a probe
	open  bool          // the latest probe told nothing, and the verdict is that of an earlier one
	told  bool          // known is closed
}

func newProber(b *Backend) *prober {
	return &prober{b: b, wanted: make(chan struct{}, 1), known: make(chan struct{})}
}

// check looks at a server that lists its models: is its engine alive, what has it to do, and can its tokens be chosen? Only the first makes it
// unfit for all requests.
func (p *prober) check(ctx context.Context) error {
	if err := p.alive(ctx); err != nil {
		return err
	}
	p.weigh(ctx)
	select {
	case p.wanted <- struct{}{}:
	default: // a probe is under way
	}
	if !p.waited {
		p.waited = true
		p.first(ctx)
	}
	return ctx.Err()
}

// first gives the first verdict as long as a check may take: who finds the server ready is to know whether it samples.
func (p *prober) first(ctx context.Context) {
	limit := time.NewTimer(p.b.cfg.Health.Timeout)
	defer limit.Stop()
	select {
	case <-p.known:
	case <-limit.C:
	case <-ctx.Done():
	}
}

// run probes, where that is due, after checks that found the server well. A probe may wait in the server's line, which checks don't.
func (p *prober) run(ctx context.Context) {
	for {
		select {
		case <-p.wanted:
		case <-ctx.Done():
			return
		}
		if p.due() {
			p.probe(ctx)
		}
		if !p.told {
			p.told = true
			close(p.known)
		}
	}
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
	s, doubt := p.b.sampling.Load(), p.b.doubt.Swap(false)
	if s.reason != "" || p.open {
		return !time.Now().Before(p.next)
	}
	if doubt || p.gone(s.session) {
		p.pause = 0
		return true
	}
	return false
}

// gone says that the engine that was seen to ask is connected no more: it, or the sidecar, has been started anew.
func (p *prober) gone(session string) bool {
	return session != "" && !slices.ContainsFunc(p.b.choices.Engines(), func(e choice.Engine) bool { return e.Session == session })
}

// verdict is what a probe found.
type verdict struct {
	sampling
	cause error // of the reason, for the log
	vain  bool  // the reason says nothing of sampling: the server may be full
}

// probe finds out whether the server's tokens can be chosen. Only what speaks against it changes that they can.
func (p *prober) probe(ctx context.Context) {
	timed, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	v := p.try(timed)
	if ctx.Err() != nil {
		return
	}
	if v.reason != "" {
		p.pause = min(max(2*p.pause, firstPause), mostPause)
		p.next = time.Now().Add(p.pause)
	}
	was := p.b.sampling.Load()
	if p.open = v.vain && was.reason == ""; p.open {
		p.b.log.InfoContext(ctx, "upstream can't be probed; it is taken to sample as it did", "upstream", p.b.cfg, "reason", v.reason, "error", v.cause)
		return
	}
	p.b.sampling.Store(&v.sampling)
	switch {
	case v.reason == "" && (was.reason != "" || was.session != v.session):
		p.b.log.InfoContext(ctx, "upstream samples", "upstream", p.b.cfg, "engine", p.engine(v.session))
	case v.reason != was.reason:
		p.b.log.WarnContext(ctx, "upstream does not sample; it serves requests without qr_ parameters", "upstream", p.b.cfg,
			"version", p.version(ctx), "reason", v.reason, "error", v.cause)
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

// Bodies of probes. Log-probabilities tell of a setting, and not every server gives them.
const (
	probeBody = `{"model":"","prompt":"Hello","max_tokens":1,"logprobs":2}`
	bareBody  = `{"model":"","prompt":"Hello","max_tokens":1}`
)

// try asks for one token.
func (p *prober) try(ctx context.Context) verdict {
	c, res := p.ask(ctx, probeBody)
	if e, ok := errors.AsType[*backends.Error](res.err); ok && e.Kind == backends.KindInvalid {
		c, res = p.ask(ctx, bareBody)
	}
	if res.err != nil {
		return failed(res.err)
	}
	v := verdict{}
	v.session, _ = c.ledger.from()
	switch {
	case c.mismatch > 0:
		v.reason = "a probe's token was another than the sidecar chose"
	case c.native > 0 && v.session == "":
		v.reason = "the sidecar heard nothing of a probe: start vLLM with --logits-processors qr_vllm:Processor, and QR_SIDECAR set to the sidecar's socket"
	case c.native > 0:
		v.reason = "the sidecar left a probe's token to vLLM"
	default:
		p.warn(ctx, res.last)
	}
	return v
}

// ask sends a probe.
func (p *prober) ask(ctx context.Context, body string) (*call, *result) {
	p.b.probes.Add(1)
	params := sampler.Defaults()
	params.Seed = new(int64(probeSeed))
	req := &backends.Request{ID: newRID(), Model: p.b.cfg.Model, Raw: json.RawMessage(body), Path: "completions", Params: params}
	r, err := p.b.newRun(req, []part{{params: params}})
	if err != nil {
		return nil, &result{err: err}
	}
	c := &call{b: p.b, part: &r.parts[0], rid: req.ID, dress: &r.dress, probe: true}
	return c, c.run(ctx, req, false)
}

// failed is the verdict of a probe that came to an error, in words for everybody.
func failed(err error) verdict {
	v := verdict{cause: root(err), vain: vain(err)}
	e, ok := errors.AsType[*backends.Error](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		v.reason = fmt.Sprintf("a probe was not answered within %s", probeTime)
	case !ok:
		v.reason = "a probe failed inside the gateway"
	default:
		v.reason = "a probe failed: " + e.Message
	}
	return v
}

// root is what is behind errors that are for clients.
func root(err error) error {
	for {
		e, ok := errors.AsType[*backends.Error](err)
		if !ok || e.Err == nil {
			return err
		}
		err = e.Err
	}
}

// vain says that an error of a probe tells nothing of whether tokens can be chosen: whatever serves it was full, slow or away.
func vain(err error) bool {
	e, ok := errors.AsType[*backends.Error](err)
	switch {
	case !ok:
		return errors.Is(err, context.DeadlineExceeded)
	case e.Code == backends.CodeUnsampled:
		inner, ok := errors.AsType[*backends.Error](e.Err)
		return ok && inner.Code == codeFull
	}
	return slices.Contains([]backends.Kind{
		backends.KindUnavailable, backends.KindLimited, backends.KindUpstream, backends.KindTimeout, backends.KindLost,
	}, e.Kind)
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
