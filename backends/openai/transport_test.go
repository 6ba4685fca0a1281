package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"qr-gateway/backends"
)

// TestSocket reaches a server over a Unix socket, whatever the address names.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	f := newFar(t, answers(200, "application/json", `{"choices":[{"index":0,"finish_reason":"stop"}]}`))
	server := &http.Server{Handler: f.Config.Handler, ReadHeaderTimeout: time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ln) })
	t.Cleanup(func() { _ = server.Close(); serving.Wait() })
	c := config("http://no.such.host.invalid/v1")
	c.Socket = path
	if o := ask(t.Context(), ready(t, c), request(false)); o.err != nil {
		t.Fatal(o.err)
	}
}

// TestAlso holds that the further check decides with the list of models, and what it may ask for.
func TestAlso(t *testing.T) {
	f := newFar(t, nil)
	f.lists(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = io.WriteString(w, modelList)
		}
	})
	var well atomic.Bool
	made := make(chan *Backend, 1)
	also := func(ctx context.Context) error {
		b := <-made
		made <- b
		resp, err := b.Get(ctx, "../models")
		if err != nil {
			return fmt.Errorf("ask above the address: %w", err)
		}
		if err := resp.Body.Close(); err != nil || resp.Request.URL.Path != "/models" {
			return fmt.Errorf("asked %s: %w", resp.Request.URL, err)
		}
		if !well.Load() {
			return errors.New("its engine is dead, says " + secret)
		}
		return nil
	}
	b, err := New(config(f.URL+"/v1"), Deps{Log: slog.New(slog.DiscardHandler), Also: also})
	if err != nil {
		t.Fatal(err)
	}
	made <- b
	running(t, b)
	i := until(t, b, "known", func(i backends.Info) bool { return i.State != "starting" })
	if i.Ready || i.Reason != "its engine is dead, says (key)" {
		t.Errorf("it is %+v", i)
	}
	well.Store(true)
	until(t, b, "ready", func(i backends.Info) bool { return i.Ready })
}
