package openai

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"qr-gateway/backends"
)

// TestCancel holds that the server sees within 200 ms that nobody waits any more, whatever it was doing.
func TestCancel(t *testing.T) {
	for name, c := range map[string]struct {
		stream bool
		before []string
	}{
		"stream, before the status":  {true, nil},
		"stream, before a chunk":     {true, []string{": hi\n\n"}},
		"stream, after a chunk":      {true, []string{someChunk}},
		"whole, before the status":   {false, nil},
		"whole, in the middle of it": {false, []string{`{"choices":`}},
	} {
		t.Run(name, func(t *testing.T) {
			reached, left := make(chan struct{}), make(chan time.Time, 1)
			b := ready(t, config(newFar(t, func(w http.ResponseWriter, r *http.Request) {
				if c.before != nil {
					streams(c.before...)(w, r)
				}
				close(reached)
				<-r.Context().Done()
				left <- time.Now()
			}).URL))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- ask(ctx, b, request(c.stream)).err }()
			<-reached
			began := time.Now()
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("it came to %v", err)
			}
			if took := (<-left).Sub(began); took > 200*time.Millisecond {
				t.Errorf("the server saw it after %s", took)
			}
		})
	}
}

// TestRandomCancels leaves at random moments. Nothing may stay behind: neither here (goleak looks after it) nor there.
func TestRandomCancels(t *testing.T) {
	const requests, atOnce = 1000, 16
	var open, served atomic.Int64
	f := newFar(t, func(w http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Add(-1)
		served.Add(1)
		answer := streams(someChunk)
		for range 8 {
			answer(w, r)
			select {
			case <-r.Context().Done():
				return
			case <-time.After(500 * time.Microsecond):
			}
		}
		streams(lastChunk, done)(w, r)
	})
	c := config(f.URL)
	c.Workers = atOnce
	b := ready(t, c)
	random := rand.New(rand.NewPCG(1, 2))
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	var whole atomic.Int64
	for i := range requests {
		slots <- struct{}{}
		limit := time.Duration(random.IntN(20_000)) * time.Microsecond
		all.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			switch o := ask(ctx, b, request(i%2 == 0 || i%3 == 0)); {
			case o.err == nil:
				whole.Add(1)
			case !errors.Is(o.err, context.DeadlineExceeded):
				var e *backends.Error // a whole reply was asked for, and this server only streams
				if !errors.As(o.err, &e) || e.Code != "upstream_protocol_error" {
					t.Errorf("request %d came to %v", i, o.err)
				}
			}
		})
	}
	all.Wait()
	if n := b.Info().Busy; n != 0 {
		t.Errorf("%d requests are under way", n)
	}
	deadline := time.After(5 * time.Second)
	for open.Load() > 0 {
		select {
		case <-deadline:
			t.Fatalf("the server still works on %d requests", open.Load())
		case <-time.After(time.Millisecond):
		}
	}
	t.Logf("%d requests reached the server, %d ended by themselves", served.Load(), whole.Load())
	if o := ask(t.Context(), b, request(true)); o.err != nil {
		t.Errorf("after all that a request comes to %v", o.err)
	}
}

// TestCancelWhileSending leaves while the server does not read the body.
func TestCancelWhileSending(t *testing.T) {
	f := newFar(t, nil)
	reached, leave := make(chan struct{}), make(chan struct{})
	defer close(leave) // a server that reads nothing doesn't notice by itself
	f.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, modelList)
			return
		}
		close(reached)
		<-leave
	})
	b := ready(t, config(f.URL))
	ctx, cancel := context.WithCancel(t.Context())
	r := request(true)
	r.Raw = append(append([]byte(`{"a":"`), make([]byte, 8<<20)...), `"}`...)
	for i := range r.Raw[6 : len(r.Raw)-2] {
		r.Raw[6+i] = 'x'
	}
	ended := make(chan error, 1)
	go func() { ended <- ask(ctx, b, r).err }()
	<-reached
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it came to %v", err)
	}
}
