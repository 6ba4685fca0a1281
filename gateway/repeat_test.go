package gateway_test

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// turnstile counts runs, and holds each before a step until it is told to go on.
type turnstile struct {
	at   int
	runs atomic.Int64
	held chan struct{}
	goOn chan struct{}
}

func newTurnstile(at int) *turnstile {
	return &turnstile{at: at, held: make(chan struct{}, 8), goOn: make(chan struct{})}
}

func (s *turnstile) step(ctx context.Context, _ string, step int) error {
	if step == 0 {
		s.runs.Add(1)
	}
	if step != s.at {
		return nil
	}
	s.held <- struct{}{}
	select {
	case <-s.goOn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// alike is a reply without what differs from one to the next: the time, and what is told of the line.
func alike(body string) string {
	body = regexp.MustCompile(`"created":\d+`).ReplaceAllString(body, `"created":0`)
	body = regexp.MustCompile(`(?m)^: .*\n\n`).ReplaceAllString(body, "")
	return body
}

// TestSentAgain: a request that is sent again gets the reply of the first, whole or as a stream.
func TestSentAgain(t *testing.T) {
	for name, body := range map[string]string{"whole": hello, "stream": streamingHello} {
		t.Run(name, func(t *testing.T) {
			stop := newTurnstile(-1)
			r := newRig()
			r.step = stop.step
			r.queued(t).build(t)
			first := r.askWith(body, "Idempotency-Key", "k1")
			again := r.askWith(body, "Idempotency-Key", "k1")
			if again.Code != http.StatusOK || first.Header().Get("Idempotent-Replayed") != "" || again.Header().Get("Idempotent-Replayed") != "true" {
				t.Errorf("got %d, headers %v, then %v", again.Code, first.Header(), again.Header())
			}
			if name == "whole" { // chunks of a stream may be put together
				if got, want := alike(again.Body.String()), alike(first.Body.String()); got != want {
					t.Errorf("got\n%s, want\n%s", got, want)
				}
			} else if got, want := texts(again.Body.String()), texts(first.Body.String()); got != want || want == "" || !strings.HasSuffix(again.Body.String(), "[DONE]\n\n") {
				t.Errorf("got\n%s, want\n%s", got, want)
			}
			if !strings.Contains(r.logged.String(), "repeats=chatcmpl-") || !r.seen.last(t).Joined {
				t.Errorf("the log does not say which request was repeated:\n%s", r.logged)
			}
			r.askWith(body, "Idempotency-Key", "k2")
			if n := stop.runs.Load(); n != 2 {
				t.Errorf("%d runs, want one for each key", n)
			}
		})
	}
}

// texts is what a stream says, with the id of each chunk that says something.
func texts(stream string) string {
	var out strings.Builder
	id := regexp.MustCompile(`"id":"([^"]*)"`).FindStringSubmatch(stream)
	if id == nil || strings.Count(stream, id[1]) < 2 {
		return ""
	}
	out.WriteString(id[1] + ":")
	for _, m := range regexp.MustCompile(`"content":"((?:[^"\\]|\\.)*)"`).FindAllStringSubmatch(stream, -1) {
		out.WriteString(m[1])
	}
	return out.String()
}

// TestSentAgainWithAnotherBody: a key belongs to one request.
func TestSentAgainWithAnotherBody(t *testing.T) {
	r := newRig().queued(t).build(t)
	r.askWith(hello, "Idempotency-Key", "k1")
	w := r.askWith(streamingHello, "Idempotency-Key", "k1")
	if _, code := envelope(t, w.Body.Bytes()); w.Code != http.StatusUnprocessableEntity || code != "idempotency_mismatch" || w.Header().Get("X-Should-Retry") != "false" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if w := r.askWith(hello, "Idempotency-Key", strings.Repeat("k", 256)); w.Code != http.StatusBadRequest {
		t.Errorf("a key too long: got %d %s", w.Code, w.Body)
	}
}

// TestClientComesBack: a client that loses its connection in mid-answer and asks again has the whole answer, which was made once.
func TestClientComesBack(t *testing.T) {
	for name, body := range map[string]string{"whole": hello, "stream": streamingHello} {
		t.Run(name, func(t *testing.T) {
			stop := newTurnstile(3)
			r := newRig()
			r.step, r.model.Workers = stop.step, 1
			r.queued(t).serve(t)
			ctx, leave := context.WithCancel(t.Context())
			req := r.keyed(ctx, t, body)
			lost := make(chan struct{})
			go func() {
				defer close(lost)
				if resp, err := http.DefaultClient.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			within(t, "the first run", stop.held)
			leave()
			<-lost
			back := make(chan reply, 1)
			go func() {
				defer close(back)
				resp, err := http.DefaultClient.Do(r.keyed(t.Context(), t, body))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := read(resp)
				if err != nil {
					t.Error(err)
				}
				back <- got
			}()
			stop.goOn <- struct{}{}
			got := within(t, "the reply to the second", back)
			if got.status != http.StatusOK || strings.Contains(string(got.body), `"error"`) || stop.runs.Load() != 1 {
				t.Errorf("%d runs; got %d %s", stop.runs.Load(), got.status, got.body)
			}
		})
	}
}

func (r *rig) keyed(ctx context.Context, t *testing.T, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+chatPath, strings.NewReader(body))
	must(t, err)
	req.Close = true
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "once")
	return req
}

// TestRoomHeaders: an answer says what its caller may still have waiting.
func TestRoomHeaders(t *testing.T) {
	r := newRig().queued(t).build(t)
	for _, body := range []string{hello, streamingHello} {
		r.idle(t)
		h := r.ask(chatPath, body).Header()
		for name, want := range map[string]string{
			"X-Ratelimit-Limit-Requests": "64", "X-Ratelimit-Remaining-Requests": "64", "X-Ratelimit-Reset-Requests": "0s",
			"X-Ratelimit-Limit-Tokens": "1000000", "X-Ratelimit-Remaining-Tokens": "1000000", "X-Ratelimit-Reset-Tokens": "0s",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
}

// idle waits until a worker waits for a request: until then the next one waits itself, and is counted.
func (r *rig) idle(t *testing.T) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for range 10_000 {
		s, err := r.line.Stats(t.Context())
		must(t, err)
		if s.Claims > 0 {
			return
		}
		<-again.C
	}
	t.Fatal("no worker is idle")
}

// TestServerEndsWithoutItsClient: an answer that goes on without its client ends with the server.
func TestServerEndsWithoutItsClient(t *testing.T) {
	stop := newTurnstile(3)
	r := newRig()
	r.step, r.model.Workers, r.cfg.DrainTimeout = stop.step, 1, 50*time.Millisecond
	r.queued(t).serve(t)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		if resp, err := http.DefaultClient.Do(r.keyed(ctx, t, hello)); err == nil {
			resp.Body.Close()
		}
	}()
	within(t, "the run", stop.held)
	leave() // and the server ends with the test
}
