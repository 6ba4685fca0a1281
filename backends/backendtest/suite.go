// Package backendtest holds every backend to the obligations of [backends.Backend]. A backend's own tests call [Run] with a model that is ready.
//
//	backendtest.Run(t, backendtest.Subject{Backend: m, Request: request})
//
// The suite starts goroutines and waits for all of them; leaks are for the caller's goleak.
package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
)

// Subject is a backend under test.
type Subject struct {
	Backend backends.Backend // ready
	// Request makes a request whose answer has at least four events with content and always the same text.
	Request func(id string) *backends.Request
	// TooLong makes one whose prompt the model has no room for; nil where the backend can't tell.
	TooLong func(id string) *backends.Request
	// Wrong makes one that its client has to mend; nil where the backend can't tell.
	Wrong func(id string) *backends.Request
}

// limits of the suite.
const (
	patience = 10 * time.Second       // for what should happen at once, on a busy machine
	instant  = 100 * time.Millisecond // for what may not wait for an engine
)

// Run runs the suite.
func Run(t *testing.T, s Subject) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Subject){
		"info": testInfo, "prepare is pure": testPrepare, "prepare refuses": testRefusals, "order of events": testEvents,
		"prepared is data": testData, "emit ends the run": testEmit, "cancel": testCancel, "cancel before the start": testCancelled,
		"more than workers": testCrowd, "prepare takes no worker": testBusy,
	} {
		t.Run(name, func(t *testing.T) { test(t, s) })
	}
}

// run is one generation as its client sees it.
type run struct {
	starts, tokens int
	text           strings.Builder
	pieces         []string
	late           bool // Started came after something else
	result         *backends.Result
	err            error
}

// take notes an event.
func (r *run) take(e backends.Event) {
	if e.Started != nil {
		r.late = r.late || len(r.pieces) > 0 || r.starts > 0
		r.starts++
	}
	if piece := e.Reasoning + e.Content + string(e.Raw); piece != "" {
		r.pieces = append(r.pieces, piece)
		r.text.WriteString(piece)
	}
	r.tokens += len(e.Tokens)
}

func (s Subject) prepare(t *testing.T, id string) *backends.Prepared {
	t.Helper()
	p, err := s.Backend.Prepare(t.Context(), s.Request(id))
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
	return p
}

// generate runs p; emit, which may be nil, is called after each event is noted.
func (s Subject) generate(ctx context.Context, p *backends.Prepared, emit func(*run) error) *run {
	r := &run{}
	r.result, r.err = s.Backend.Generate(ctx, p, func(e backends.Event) error {
		r.take(e)
		if emit == nil {
			return nil
		}
		return emit(r)
	})
	return r
}

// free waits until no worker is busy: a run that has returned may take a moment to be counted out.
func (s Subject) free(t *testing.T) {
	t.Helper()
	limit := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.Backend.Info().Busy > 0 {
		select {
		case <-tick.C:
		case <-limit:
			t.Errorf("%d workers are busy after the end", s.Backend.Info().Busy)
			return
		}
	}
}

func testInfo(t *testing.T, s Subject) {
	began := time.Now()
	info := s.Backend.Info()
	if d := time.Since(began); d > instant {
		t.Errorf("Info took %s", d)
	}
	if info.Model == "" || info.Backend == "" || info.State == "" || info.Workers < 1 || !info.Ready || info.Reason != "" {
		t.Errorf("info %+v, want a model that is ready", info)
	}
}

func testPrepare(t *testing.T, s Subject) {
	first, second := s.prepare(t, "a"), s.prepare(t, "a")
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("two preparations of one request differ:\n%s", diff)
	}
	if first.Cost() < 1 || first.MaxTokens < 0 {
		t.Errorf("cost %d, at most %d tokens", first.Cost(), first.MaxTokens)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Backend.Prepare(ctx, s.Request("b")); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v, want the context's error", err)
	}
}

func testRefusals(t *testing.T, s Subject) {
	for kind, request := range map[backends.Kind]func(string) *backends.Request{backends.KindTooLong: s.TooLong, backends.KindInvalid: s.Wrong} {
		if request == nil {
			continue
		}
		_, err := s.Backend.Prepare(t.Context(), request("a"))
		var e *backends.Error
		if !errors.As(err, &e) || e.Kind != kind || e.Message == "" || e.Code == "" {
			t.Errorf("got %v, want an error of kind %s with its code", err, kind)
		}
	}
}

func testEvents(t *testing.T, s Subject) {
	p := s.prepare(t, "a")
	var inside sync.Mutex
	r := s.generate(t.Context(), p, func(*run) error {
		if !inside.TryLock() {
			t.Error("emit was called while it ran")
			return nil
		}
		defer inside.Unlock()
		return nil
	})
	if r.err != nil {
		t.Fatal(r.err)
	}
	if r.starts != 1 || r.late {
		t.Errorf("started %d times, late: %t; want once, before all else", r.starts, r.late)
	}
	if len(r.pieces) < 4 {
		t.Errorf("%d events with content; the suite needs 4 or more", len(r.pieces))
	}
	for _, piece := range r.pieces {
		if !utf8.ValidString(piece) {
			t.Errorf("piece %q is cut within a character", piece)
		}
	}
	raw := s.Backend.Info().Raw
	if u := r.result.Usage; !raw && (r.result.Reason == "" || u.CompletionTokens < r.tokens || u.PromptTokens != len(p.Tokens)) {
		t.Errorf("result %+v after %d tokens of %d", r.result, r.tokens, len(p.Tokens))
	}
	s.free(t)
}

// testData holds that a prepared request can go through a queue, and be run again.
func testData(t *testing.T, s Subject) {
	p := s.prepare(t, "a")
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var again backends.Prepared
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	first, second := s.generate(t.Context(), p, nil), s.generate(t.Context(), &again, nil)
	if err := errors.Join(first.err, second.err); err != nil {
		t.Fatal(err)
	}
	if raw := s.Backend.Info().Raw; !raw && first.text.String() != second.text.String() {
		t.Errorf("the request said %q, then %q", &first.text, &second.text)
	}
}

func testEmit(t *testing.T, s Subject) {
	gone, calls := errors.New("the client is gone"), 0
	r := s.generate(t.Context(), s.prepare(t, "a"), func(r *run) error {
		calls++
		if len(r.pieces) == 2 {
			return gone
		}
		return nil
	})
	if !errors.Is(r.err, gone) || r.result != nil {
		t.Errorf("got %v, %v; want the error of emit", r.result, r.err)
	}
	if len(r.pieces) != 2 {
		t.Errorf("%d pieces came after emit had refused one", len(r.pieces)-2)
	}
	s.free(t)
}

// testCancel holds that a run ends soon after its context has, wherever it is.
func testCancel(t *testing.T, s Subject) {
	for _, at := range []int{0, 1, 3} {
		ctx, cancel := context.WithCancel(t.Context())
		var ended time.Time
		r := s.generate(ctx, s.prepare(t, "a"), func(r *run) error {
			if len(r.pieces) == at && ended.IsZero() {
				ended = time.Now()
				cancel()
			}
			return nil
		})
		cancel()
		if !errors.Is(r.err, context.Canceled) {
			t.Errorf("cancelled after %d pieces: %v, want the context's error", at, r.err)
		}
		if d := time.Since(ended); d > patience {
			t.Errorf("cancelled after %d pieces: went on for %s", at, d)
		}
		if len(r.pieces) > at+2 {
			t.Errorf("cancelled after %d pieces: %d more came", at, len(r.pieces)-at)
		}
	}
	s.free(t)
}

func testCancelled(t *testing.T, s Subject) {
	p := s.prepare(t, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := s.generate(ctx, p, nil); !errors.Is(r.err, context.Canceled) {
		t.Errorf("got %v, want the context's error", r.err)
	}
	s.free(t)
}

// testCrowd runs more requests at once than there are workers: each gets its own answer.
func testCrowd(t *testing.T, s Subject) {
	n := 2*s.Backend.Info().Workers + 1
	want := s.generate(t.Context(), s.prepare(t, "a"), nil).text.String()
	texts := make([]string, n)
	var all sync.WaitGroup
	for i := range texts {
		p := s.prepare(t, "a")
		all.Go(func() {
			r := s.generate(t.Context(), p, nil)
			texts[i] = r.text.String()
			if r.err != nil {
				t.Error(r.err)
			}
		})
	}
	all.Wait()
	if raw := s.Backend.Info().Raw; !raw && slices.ContainsFunc(texts, func(text string) bool { return text != want }) {
		t.Errorf("in company: %q, alone: %q", texts, want)
	}
	s.free(t)
}

// testBusy holds that a request can be prepared, and the model described, while all workers are held.
func testBusy(t *testing.T, s Subject) {
	n := s.Backend.Info().Workers
	held, release := make(chan struct{}, n), make(chan struct{})
	var all sync.WaitGroup
	for range n {
		p := s.prepare(t, "a")
		all.Go(func() {
			first := true
			r := s.generate(t.Context(), p, func(*run) error {
				if first {
					first = false
					held <- struct{}{}
					<-release
				}
				return nil
			})
			if r.err != nil {
				t.Error(r.err)
			}
		})
	}
	for range n {
		<-held
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := s.Backend.Prepare(ctx, s.Request("b")); err != nil {
		t.Errorf("prepare while all workers are busy: %v", err)
	}
	testInfo(t, s)
	close(release)
	all.Wait()
	s.free(t)
}
