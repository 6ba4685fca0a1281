package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// state is what is known of the server.
type state string

const (
	stateStarting    state = "starting" // nothing yet
	stateReady       state = "ready"
	stateUnreachable state = "unreachable"
)

// snapshot is what the latest check found. It is never changed; changed is closed when the next one is there.
type snapshot struct {
	state   state
	reason  string // why not ready, in words for everybody
	err     error  // the same, for the log
	context int    // tokens of a request; 0 is not known
	listed  bool   // the server's list has the model
	changed chan struct{}
}

// Run checks the server until ctx ends.
func (b *Backend) Run(ctx context.Context) error {
	defer b.client.CloseIdleConnections()
	misses := 0
	for ctx.Err() == nil {
		next, sure := b.check(ctx)
		if ctx.Err() != nil {
			break
		}
		if misses++; next.state == stateReady {
			misses = 0
		}
		// A server that is busy may answer late once.
		if sure || misses != 1 || b.now.Load().state != stateReady {
			b.enter(next)
		}
		b.rest(ctx, misses > 0)
	}
	return nil
}

// rest waits until the next check.
func (b *Backend) rest(ctx context.Context, unwell bool) {
	pause(ctx, b.cfg.Health.Retry, nil)
	if !unwell {
		pause(ctx, b.cfg.Health.Interval-b.cfg.Health.Retry, b.poke)
	}
}

func pause(ctx context.Context, d time.Duration, sooner <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-sooner:
	case <-ctx.Done():
	}
}

// suspect asks for a check soon.
func (b *Backend) suspect() {
	select {
	case b.poke <- struct{}{}:
	default: // it is asked for already
	}
}

// enter publishes what a check found. Only Run's goroutine calls it.
func (b *Backend) enter(next *snapshot) {
	old := b.now.Load()
	if next.context == 0 {
		next.context = old.context
	}
	next.changed = make(chan struct{})
	b.now.Store(next)
	close(old.changed)
	switch {
	case old.state == next.state && old.reason == next.reason:
	case next.state != stateReady:
		b.log.Warn("upstream is away", "upstream", b.cfg, "reason", next.reason, "error", next.err)
	case next.listed:
		b.log.Info("upstream is ready", "upstream", b.cfg, "context", next.context)
	default:
		b.log.Warn("upstream is ready, but does not list the model; if requests fail, look at upstream_model", "upstream", b.cfg)
	}
}

// WaitReady returns when a request can be sent, or when ctx ends.
func (b *Backend) WaitReady(ctx context.Context) error {
	for {
		s := b.now.Load()
		if s.state == stateReady {
			return nil
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// listLimit bounds a list of models, in bytes. Hosted ones have some hundreds.
const listLimit = 8 << 20

// check looks at the server. It is not sure of a failure that time may mend.
func (b *Backend) check(ctx context.Context) (found *snapshot, sure bool) {
	found, sure = b.list(ctx)
	if b.also == nil || found.state != stateReady {
		return found, sure
	}
	if err := b.also(ctx); err != nil {
		return away(b.scrub(short(err.Error())), err), true
	}
	return found, sure
}

// list asks for the server's models.
func (b *Backend) list(ctx context.Context) (found *snapshot, sure bool) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Health.Timeout)
	defer cancel()
	b.readKey()
	resp, err := b.Get(ctx, "models")
	if err != nil {
		reason := unreachable(err)
		if ctx.Err() != nil {
			return away("it did not answer within "+b.cfg.Health.Timeout.String(), err), false
		}
		return away(reason, err), true
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, listLimit))
	if err != nil {
		return away("it did not answer to the end", err), false
	}
	return b.judge(resp.StatusCode, body), true
}

// judge reads the answer to a check. A server without a list of models is well: not all have one.
func (b *Backend) judge(status int, body []byte) *snapshot {
	switch {
	case status == http.StatusOK:
		return b.find(body)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return away("it refuses the gateway's key", fmt.Errorf("status %d: %s", status, b.scrub(short(string(body)))))
	case status >= http.StatusInternalServerError:
		return away(fmt.Sprintf("it answers with status %d", status), errors.New(b.scrub(short(string(body)))))
	case status >= http.StatusMultipleChoices && status < http.StatusBadRequest:
		return away("it answers with a redirect", fmt.Errorf("status %d: put the address that it leads to into url", status))
	default:
		return &snapshot{state: stateReady}
	}
}

func away(reason string, err error) *snapshot {
	return &snapshot{state: stateUnreachable, reason: reason, err: err}
}

// listed is an entry of a list of models with the places in which servers tell how long a request may be, and whether they can take one.
type listed struct {
	ID            string
	MaxModelLen   int `json:"max_model_len"`
	ContextLength int `json:"context_length"`
	ContextWindow int `json:"context_window"`
	Meta          struct {
		Context int `json:"n_ctx"`
	}
	QR *struct {
		Ready   *bool
		Reason  string
		Context int
	}
}

func (l *listed) context() int {
	sizes := []int{l.Meta.Context, l.MaxModelLen, l.ContextLength, l.ContextWindow}
	if l.QR != nil {
		sizes = append(sizes, l.QR.Context)
	}
	for _, n := range sizes {
		if n > 0 {
			return n
		}
	}
	return 0
}

// find looks the model up in a list.
func (b *Backend) find(body []byte) *snapshot {
	var list struct{ Data []json.RawMessage }
	if json.Unmarshal(body, &list) != nil {
		return away("it answers with something else than a list of models", errors.New(b.scrub(short(string(body)))))
	}
	var only listed
	for _, raw := range list.Data {
		var l listed
		_ = json.Unmarshal(raw, &l) // what has another form than expected is not there
		if l.ID == b.cfg.upstreamModel() {
			return l.snapshot()
		}
		only = l
	}
	if len(list.Data) == 1 {
		return &snapshot{state: stateReady, context: only.context(), listed: true} // such a server takes any name
	}
	return &snapshot{state: stateReady}
}

func (l *listed) snapshot() *snapshot {
	s := &snapshot{state: stateReady, context: l.context(), listed: true}
	if l.QR != nil && l.QR.Ready != nil && !*l.QR.Ready {
		s.state, s.reason = stateUnreachable, strings.TrimSpace("its model is not ready: "+l.QR.Reason)
		s.err = errors.New(s.reason)
	}
	return s
}

// readKey takes a key that was changed in its file.
func (b *Backend) readKey() {
	key, err := b.cfg.keyOf()
	if err != nil {
		b.log.Warn("the key stays as it was", "upstream", b.cfg, "error", err)
		return
	}
	b.key.Store(&key)
}
