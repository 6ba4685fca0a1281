package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// hang is an engine that stays at its first tokens until the request is cancelled, and tells of both.
type hang struct {
	at            int
	started, gone chan string // job ids
}

func newHang(at int) *hang {
	return &hang{at: at, started: make(chan string, 16), gone: make(chan string, 16)}
}

func (h *hang) step(ctx context.Context, id string, step int) error {
	if step != h.at {
		return nil
	}
	h.started <- id
	<-ctx.Done()
	h.gone <- id
	return ctx.Err()
}

// dial sends a request on a connection of its own.
func (r *rig) dial(t *testing.T, body string) net.Conn {
	t.Helper()
	conn, err := r.send(body)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (r *rig) send(body string) (net.Conn, error) {
	conn, err := r.connect()
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
	return conn, err
}

func within[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(5 * time.Second):
		t.Fatalf("%s: nothing within 5 s", what)
		panic("unreachable")
	}
}

// A client that leaves while its request is decoded frees the worker, whether it streams or not.
func TestClientLeavesWhileDecoding(t *testing.T) {
	for name, body := range map[string]string{"stream": streamingHello, "whole": hello} {
		for at, stage := range []string{"prefill", "decode"} {
			t.Run(name+" in "+stage, func(t *testing.T) {
				h := newHang(at)
				r := newRig()
				r.step, r.model.Workers = h.step, 1
				r.queued(t).serve(t)
				conn := r.dial(t, body)
				id := within(t, "start", h.started)
				conn.Close()
				if got := within(t, "cancel", h.gone); got != id {
					t.Errorf("job %s was cancelled, want %s", got, id)
				}
			})
		}
	}
}

// A client that leaves the queue is never run, and those behind it move up.
func TestClientLeavesTheQueue(t *testing.T) {
	h := newHang(0)
	r := newRig()
	r.step, r.model.Workers = h.step, 1
	r.queued(t).serve(t)
	first := r.dial(t, streamingHello)
	running := within(t, "start of the first", h.started)
	second := r.dial(t, streamingHello)
	awaitQueued(t, second)
	third := r.dial(t, streamingHello)
	awaitQueued(t, third)
	second.Close()
	within(t, "end of the second", r.seen.one)
	first.Close()
	if got := within(t, "cancel of the first", h.gone); got != running {
		t.Errorf("job %s was cancelled, want %s", got, running)
	}
	next := within(t, "start of the third", h.started)
	third.Close()
	if got := within(t, "cancel of the third", h.gone); got != next {
		t.Errorf("job %s was cancelled, want %s", got, next)
	}
	select {
	case id := <-h.started:
		t.Errorf("job %s of a client that left was run", id)
	default:
	}
}

// awaitQueued reads up to the comment that says where in the queue the request is.
func awaitQueued(t *testing.T, conn net.Conn) *bufio.Reader {
	t.Helper()
	must(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		must(t, err)
		if strings.HasPrefix(line, ": queued, position ") {
			return in
		}
	}
}

// The line is bounded: whoever comes too late is told when to come back.
func TestQueueIsFull(t *testing.T) {
	h := newHang(0)
	r := newRig()
	r.step, r.model.Workers, r.limits.Jobs = h.step, 1, 1
	r.queued(t).serve(t)
	r.dial(t, streamingHello)
	within(t, "start", h.started)
	awaitQueued(t, r.dial(t, streamingHello))
	for _, body := range []string{streamingHello, hello} {
		got := r.tell(t, chatPath, body)
		if _, code := envelope(t, got.body); got.status != http.StatusTooManyRequests || code != "queue_full" || got.header.Get("Retry-After") == "" {
			t.Errorf("got %d %s, Retry-After %q", got.status, code, got.header.Get("Retry-After"))
		}
	}
}

// Clients at once get what each gets alone.
func TestNoCrossTalk(t *testing.T) {
	r := newRig()
	r.queued(t).serve(t)
	body := func(i int) string {
		return fmt.Sprintf(`{"model":"fake","seed":%d,"max_tokens":50,"messages":[{"role":"user","content":"client %d"}]}`, i, i)
	}
	content := func(i int) string {
		got, err := r.post(chatPath, "application/json", body(i))
		if err != nil {
			return err.Error()
		}
		return string(got.body[bytes.Index(got.body, []byte("choices")):bytes.Index(got.body, []byte("usage"))])
	}
	const clients = 8
	var alone, together [clients]string
	for i := range clients {
		alone[i] = content(i)
	}
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() { together[i] = content(i) })
	}
	all.Wait()
	if alone != together {
		t.Errorf("alone %q, together %q", alone, together)
	}
}

// Clients that leave at any moment leave nothing behind: the workers are free, and the next answer is right.
func TestManyLeaveAtAnyMoment(t *testing.T) {
	r := newRig()
	r.model.Delay = 200 * time.Microsecond
	r.queued(t).serve(t)
	want := r.tell(t, chatPath, hello)
	const clients, each = 8, 25
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for j := range each {
				if err := r.leave([]string{hello, streamingHello}[j%2], i*each+j); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for i := 0; r.models[0].Info().Busy > 0; i++ {
		if i > 1000 {
			t.Fatalf("%d workers are still busy", r.models[0].Info().Busy)
		}
		<-time.After(5 * time.Millisecond)
	}
	got := r.tell(t, chatPath, hello)
	if a, b := decode[whole](t, want.body), decode[whole](t, got.body); a.Choices[0].Message != b.Choices[0].Message {
		t.Errorf("got %+v, want %+v", b, a)
	}
}

// leave sends a request and goes away at a byte or a moment that depends on when.
func (r *rig) leave(body string, when int) error {
	conn, err := r.send(body)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(time.Duration(when) * 50 * time.Microsecond)); err != nil {
		return err
	}
	_, err = io.CopyN(io.Discard, conn, int64(when)*10)
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
