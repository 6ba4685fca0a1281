package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
)

// wait is a pause of the tested time.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestKeepAliveFromTheMomentOfQueueing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.do = doFunc(func(ctx context.Context, job dispatch.Job, sink dispatch.Sink) (*backends.Result, error) {
			sink.Queued(3, 90*time.Second)
			if err := wait(ctx, 15*time.Second); err != nil {
				return nil, err
			}
			sink.Queued(1, 0)
			if err := wait(ctx, 10*time.Second); err != nil {
				return nil, err
			}
			if err := sink.Event(backends.Event{Started: &backends.Started{}}); err != nil {
				return nil, err
			}
			return &backends.Result{Reason: backends.ReasonStop}, wait(ctx, 8*time.Second)
		})
		w := r.build(t).ask(chatPath, streamingHello)
		want := ": queued, position 3, about 90 s\n\n" + // at once
			": queued, position 3, about 90 s\n\n" + // after 10 s
			": queued, position 1\n\n" + // after 20 s
			"data: {role}\n\n" + // after 25 s
			": ping\n\n" + // after 30 s
			"data: {end}\n\ndata: [DONE]\n\n" // after 33 s
		got := w.Body.String()
		for _, line := range strings.Split(got, "\n") {
			switch {
			case strings.Contains(line, `"role"`):
				got = strings.Replace(got, line, "data: {role}", 1)
			case strings.Contains(line, `"stop"`):
				got = strings.Replace(got, line, "data: {end}", 1)
			}
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if o := r.seen.last(t); o.QueueWait != 25*time.Second || o.Duration != 33*time.Second {
			t.Errorf("it waited %s of %s, want 25 s of 33 s", o.QueueWait, o.Duration)
		}
	})
}

// pipes is a listener without a network, so that its deadlines run on the test's clock.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// dial opens a connection.
func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours
}

// ask sends a request on a connection of its own. The pipe has no buffer, so this returns when the server has read it.
func (p *pipes) ask(t *testing.T, body string) net.Conn {
	t.Helper()
	ours := p.dial()
	_, err := fmt.Fprintf(ours, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
	must(t, err)
	return ours
}

// pipe serves on pipes. stop ends the server and waits for it.
func (r *rig) pipe(t *testing.T) (ln *pipes, stop func()) {
	t.Helper()
	ln = newPipes()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	srv := r.build(t).srv
	go func() { served <- srv.Serve(ctx, ln) }()
	return ln, func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	}
}

// A client that stops reading loses its job after the write timeout, not never.
func TestStuckClientFreesTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		ended := make(chan error, 1)
		r.do = doFunc(func(ctx context.Context, job dispatch.Job, sink dispatch.Sink) (*backends.Result, error) {
			began := time.Now()
			res, err := r.direct.Do(ctx, job, sink)
			ended <- fmt.Errorf("after %s: %w", time.Since(began), err)
			return res, err
		})
		ln, stop := r.pipe(t)
		conn := ln.ask(t, streamingHello)
		if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "after 30s") {
			t.Errorf("the job ended %v, want cancelled after 30s", err)
		}
		conn.Close()
		stop()
	})
}

// A deadline that was set for one reply must not end a later one on the same connection.
func TestConnectionIsReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, stop := newRig().pipe(t)
		conn := ln.dial()
		in := bufio.NewReader(conn)
		for _, request := range []string{"GET /healthz", "POST " + chatPath, "GET /metrics", "POST " + chatPath, "GET /v1/models"} {
			body := ""
			if strings.HasPrefix(request, "POST") {
				body = streamingHello
			}
			_, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", request, len(body), body)
			must(t, err)
			got := receive(t, in)
			if got.status != http.StatusOK || len(got.body) == 0 || got.close {
				t.Errorf("%s: got %d %s (close: %t)", request, got.status, got.body, got.close)
			}
			<-time.After(time.Minute) // longer than any reply's deadline, shorter than the connection may idle
		}
		conn.Close()
		stop()
	})
}

// A client that never sends its body is not waited for.
func TestBodyHasATimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, stop := newRig().pipe(t)
		conn := ln.dial()
		_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", chatPath)
		must(t, err)
		began := time.Now()
		got := receive(t, bufio.NewReader(conn))
		if _, code := envelope(t, got.body); got.status != http.StatusRequestTimeout || code != "body_timeout" || time.Since(began) != time.Minute {
			t.Errorf("got %d %s after %s, want 408 after 1m", got.status, code, time.Since(began))
		}
		conn.Close()
		stop()
	})
}

// drained starts a stream that takes as long as given, stops the server 1 s later, and returns what the client read and when
// the server had ended.
func drained(t *testing.T, takes time.Duration) (stream string, after time.Duration) {
	t.Helper()
	r := newRig()
	r.step = func(ctx context.Context, _ string, step int) error {
		if step == 1 {
			return wait(ctx, takes)
		}
		return nil
	}
	ln, stop := r.pipe(t)
	conn := ln.ask(t, streamingHello)
	read := make(chan string, 1)
	go func() { read <- readReply(conn) }()
	<-time.After(time.Second) // of the test's clock
	began := time.Now()
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	synctest.Wait()
	if w := r.get("/readyz"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "draining") {
		t.Errorf("readyz says %d %s while draining", w.Code, w.Body)
	}
	<-stopped
	conn.Close()
	return <-read, time.Since(began)
}

func readReply(conn net.Conn) string {
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err.Error()
	}
	got, err := read(resp)
	if err != nil {
		return err.Error()
	}
	return string(got.body)
}

func TestDrainLetsRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream, after := drained(t, 10*time.Second)
		checkStream(t, stream, true, false)
		if after < 9*time.Second || after > 11*time.Second {
			t.Errorf("the server ended after %s, want about 9 s", after)
		}
	})
}

func TestDrainEndsWhatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream, after := drained(t, time.Hour)
		lines := dataLines(t, stream)
		if _, code := envelope(t, []byte(lines[len(lines)-1])); code != "shutting_down" {
			t.Errorf("the stream ends with %s", lines[len(lines)-1])
		}
		if after < 30*time.Second || after > 33*time.Second {
			t.Errorf("the server ended after %s, want about 30 s", after)
		}
	})
}
