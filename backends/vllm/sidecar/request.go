package sidecar

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"qr-gateway/backends"
	"qr-gateway/backends/account"
	"qr-gateway/backends/supply"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/wire"
	"qr-gateway/entropy/local"
	"qr-gateway/sampler"
)

const (
	maxRID    = 64       // bytes
	maxConfig = 64 << 10 // bytes
	answerCap = 256      // tokens that there is room for at the start
)

// request is one answer. It outlives the connection of the plugin that shows its rows.
type request struct {
	rid   string
	mark  [sha256.Size]byte // of parameters and prompt
	vocab int
	fail  wire.Fail
	seen  atomic.Int64 // when it was begun or shown last, in Unix nanoseconds
	held  atomic.Bool  // it has an owner

	opened chan struct{} // closed once tap and failed are there
	cancel context.CancelFunc
	quick  bool // its numbers are there at once

	work   sync.Mutex // guards all below
	owner  *session   // nil: none
	trail  *trail
	handle uint32
	params sampler.Params
	stream *sampler.Stream
	tap    *account.Tap
	ledger *account.Ledger
	failed *backends.Error // what ended the answer
	told   bool            // failed is in the trail

	tokens  []int32 // of the answer; -1 where not known
	last    shown
	voids   int // of the step at hand
	native  int
	wrong   int // tokens that are others than were chosen
	resumed []int

	head     sampler.Head
	ids      []int32 // scratch, with
	logits   []float32
	whole    []float32 // of inline rows
	begun    time.Time
	first    time.Time // row
	latest   time.Time // row
	finished bool
}

// newRequest makes a request of what the plugin says. What is wrong with it is what its first row is answered with.
func newRequest(g *wire.Begin, t *trail, shape wire.Shape, log *slog.Logger, now time.Time) *request {
	r := &request{
		rid: g.RID, mark: markOf(g), trail: t, vocab: shape.Vocab, fail: g.Fail, opened: make(chan struct{}), cancel: func() {}, begun: now,
		tokens: make([]int32, 0, answerCap), ids: make([]int32, shape.K), logits: make([]float32, shape.K),
	}
	r.seen.Store(now.UnixNano())
	if r.failed = r.read(g); r.failed != nil {
		r.quick = true
		return r
	}
	r.ledger = account.NewLedger(r.rid, &r.params, log)
	r.stream.Observe(r.ledger.Tells())
	r.replay(g.History, int(g.Step))
	if g.Step > 0 {
		r.resumed = append(r.resumed, int(g.Step))
	}
	return r
}

// markOf tells requests apart that have the same rid.
func markOf(g *wire.Begin) (sum [sha256.Size]byte) {
	h := sha256.New()
	b := (&wire.Begin{Config: g.Config, Prompt: g.Prompt}).Append(nil)
	h.Write(b)
	h.Sum(sum[:0])
	return sum
}

// read takes the parameters in.
func (r *request) read(g *wire.Begin) *backends.Error {
	if len(g.Config) > maxConfig {
		return invalid("invalid_value", "qr_cfg", "send the parameters that differ from their defaults only", "qr_cfg has %d bytes; it takes at most %d", len(g.Config), maxConfig)
	}
	p, err := sampler.ParseParams(g.Config)
	if err != nil {
		return badConfig(err)
	}
	if p.UsesLookahead() {
		return invalid("lookahead_unavailable", "qr_decoder", "set qr_decoder plain and leave qr_alpha and qr_wave_period out, or ask a model of the llama backend",
			"looking ahead needs forks of the model's state, which a sidecar does not have")
	}
	if p.ThinkBan != nil && *p.ThinkBan {
		return invalid("invalid_value", "qr_think_ban", "leave qr_think_ban out", "qr_think_ban needs the texts of the tokens, which a sidecar does not have")
	}
	r.params = p
	r.stream = sampler.NewStream(r.vocab)
	if err := r.stream.Begin(&r.params, g.Prompt); err != nil {
		return badConfig(err)
	}
	r.quick = p.Seed != nil || p.Bypass || (p.EntropySource == "" || p.EntropySource == local.SystemName) && supply.Calibration(&p).Count == 0
	return nil
}

func checkRID(rid string) *backends.Error {
	if len(rid) >= 1 && len(rid) <= maxRID && utf8.ValidString(rid) {
		return nil
	}
	return invalid("invalid_value", "qr_rid", "let the gateway make it", "qr_rid is %.80q; it takes 1 to %d bytes of text", rid, maxRID)
}

// badConfig is the error of parameters that can't be read.
func badConfig(err error) *backends.Error {
	e := asError(context.Background(), 0, err)
	if e.Kind != backends.KindInvalid {
		e = invalid("invalid_value", "qr_cfg", "send what the gateway sends: a JSON object of parameters", "qr_cfg can't be used: %v", err)
	}
	return e
}

// open makes ready where the numbers come from.
func (r *request) open(ctx context.Context, supplier account.Supplier) {
	defer close(r.opened)
	tap, err := openTap(ctx, supplier, &r.params)
	r.work.Lock()
	defer r.work.Unlock()
	switch {
	case err != nil:
		r.failed = openFailed(ctx, r.params.EntropySource, err)
	case r.finished: // in the meantime
		tap.End()
	default:
		r.tap = tap
		tap.Accepted(-1, -1)
	}
}

// openTap is account.Open of sources that may panic.
func openTap(ctx context.Context, supplier account.Supplier, p *sampler.Params) (tap *account.Tap, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("open entropy source: panic: %v", v)
		}
	}()
	return account.Open(ctx, supplier, p)
}

// replay takes the answer so far in.
func (r *request) replay(history []int32, step int) {
	for i := range step {
		token := int32(-1)
		if i < len(history) {
			token = history[i]
		}
		r.accept(token)
	}
}

// accept takes in a token that was not chosen here.
func (r *request) accept(token int32) {
	r.stream.Accept(token, nil)
	r.tokens = append(r.tokens, token)
	r.forgetRow()
}

// gap takes in that the tokens before step were chosen by somebody else.
func (r *request) gap(step int, session string) {
	for r.stream.Step() < step {
		r.foreign(-1, session)
	}
}

// foreign takes in a token that the engine chose itself.
func (r *request) foreign(token int32, session string) {
	at := r.stream.Step()
	native := r.last.here && r.last.step == at && !r.last.asked // this very row was answered without a token
	counted := native && r.last.native
	r.accept(token)
	if !counted {
		r.native++
	}
	if !native { // else the trail has it
		r.trail.push(&choice.Choice{Step: at, Token: token, Status: choice.Native, Session: session})
	}
}
