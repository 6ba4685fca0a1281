package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"qr-gateway/backends"
)

// TestLists holds what is read of the lists that servers give.
func TestLists(t *testing.T) {
	for name, c := range map[string]struct {
		status  int
		body    string
		state   string
		reason  string
		context int
	}{
		"vLLM":             {200, `{"data":[{"id":"other"},{"id":"there","max_model_len":4096}]}`, "ready", "", 4096},
		"llama-server":     {200, `{"models":[],"data":[{"id":"file.gguf","meta":{"n_ctx_train":8192,"n_ctx":2048}}]}`, "ready", "", 2048},
		"OpenRouter":       {200, `{"data":[{"id":"a"},{"id":"there","context_length":1000}]}`, "ready", "", 1000},
		"Groq":             {200, `{"data":[{"id":"a"},{"id":"there","context_window":1000}]}`, "ready", "", 1000},
		"another gateway":  {200, `{"data":[{"id":"there","qr":{"ready":true,"context":512}}]}`, "ready", "", 512},
		"one that is down": {200, `{"data":[{"id":"there","qr":{"ready":false,"reason":"loading","context":512}}]}`, "unreachable", "its model is not ready: loading", 512},
		"OpenAI":           {200, modelList, "ready", "", 0},
		"not listed":       {200, `{"data":[{"id":"a","context_length":1},{"id":"b","context_length":2}]}`, "ready", "", 0},
		"empty":            {200, `{"data":[]}`, "ready", "", 0},
		"null":             {200, `{"data":null}`, "ready", "", 0},
		"odd entries":      {200, `{"data":[7,"x",{"id":"there","max_model_len":"many"}]}`, "ready", "", 0},
		"no list":          {404, `{"detail":"Not Found"}`, "ready", "", 0},
		"limited":          {429, ``, "ready", "", 0},
		"a page":           {200, `<html>`, "unreachable", "it answers with something else than a list of models", 0},
		"loading":          {503, `{"error":{"message":"Loading model"}}`, "unreachable", "it answers with status 503", 0},
		"wrong key":        {401, `{}`, "unreachable", "it refuses the gateway's key", 0},
		"moved":            {302, ``, "unreachable", "it answers with a redirect", 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFar(t, nil)
			f.lists(answers(c.status, "application/json", c.body))
			b := start(t, config(f.URL))
			i := until(t, b, "known", func(i backends.Info) bool { return i.State != "starting" })
			want := backends.Info{
				Model: "here", Backend: "openai", Ready: c.state == "ready", State: c.state, Reason: c.reason, Context: c.context,
				Workers: 4, Chat: true, Raw: true,
			}
			if fmt.Sprintf("%+v", i) != fmt.Sprintf("%+v", want) {
				t.Errorf("it is %+v\nwant %+v", i, want)
			}
		})
	}
}

// TestComesAndGoes follows a server through a restart.
func TestComesAndGoes(t *testing.T) {
	f := newFar(t, streams(someChunk, lastChunk, done))
	well := f.models
	var log syncBuffer
	b := startLogged(t, config(f.URL), &log)
	if err := b.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.lists(answers(503, "text/plain", "down"))
	until(t, b, "away", func(i backends.Info) bool { return !i.Ready })
	waited := make(chan error, 1)
	go func() { waited <- b.WaitReady(t.Context()) }()
	f.lists(well)
	if err := <-waited; err != nil {
		t.Errorf("WaitReady = %v", err)
	}
	if o := ask(t.Context(), b, request(true)); o.err != nil {
		t.Error(o.err)
	}
	for _, words := range []string{"upstream is away", "upstream is ready", "status 503"} {
		if !strings.Contains(log.String(), words) {
			t.Errorf("log lacks %q:\n%s", words, log.String())
		}
	}
	if strings.Contains(log.String(), secret) {
		t.Errorf("log shows the key:\n%s", log.String())
	}
}

// syncBuffer is a log that may be read meanwhile.
type syncBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestFailureIsChecked holds that a request that fails brings a check soon.
func TestFailureIsChecked(t *testing.T) {
	f := newFar(t, streams(someChunk, lastChunk, done))
	c := config(f.URL)
	c.Health.Interval = time.Hour
	b := ready(t, c)
	f.Close()
	ask(t.Context(), b, request(true))
	until(t, b, "away", func(i backends.Info) bool { return !i.Ready })
}

// TestLateOnce holds that one check without an answer doesn't take a busy server out of service, and that two do.
func TestLateOnce(t *testing.T) {
	f := newFar(t, nil)
	well := f.models
	c := config(f.URL)
	c.Health.Timeout = 50 * time.Millisecond
	b := ready(t, c)
	leave := make(chan struct{})
	defer close(leave)
	late := make(chan struct{}, 100)
	silent := func(_ http.ResponseWriter, r *http.Request) {
		late <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-leave:
		}
	}
	var once sync.Once
	again := make(chan struct{})
	f.lists(func(w http.ResponseWriter, r *http.Request) {
		first := false
		once.Do(func() { first = true })
		if first {
			silent(w, r)
			return
		}
		well(w, r)
		select {
		case again <- struct{}{}:
		default:
		}
	})
	<-late
	<-again
	if i := b.Info(); !i.Ready {
		t.Errorf("one late answer made it %+v", i)
	}
	f.lists(silent)
	i := until(t, b, "away", func(i backends.Info) bool { return !i.Ready })
	if i.Reason != "it did not answer within 50ms" {
		t.Errorf("reason is %q", i.Reason)
	}
}

// TestSilentFromTheStart has a server that takes connections and says nothing: Info is there at once, and Prepare waits no longer than a check.
func TestSilentFromTheStart(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c := config("http://" + ln.Addr().String())
	c.Health.Timeout = 100 * time.Millisecond
	b := start(t, c)
	began := time.Now()
	if i := b.Info(); i.State != "starting" || i.Ready || time.Since(began) > 50*time.Millisecond {
		t.Errorf("after %s it is %+v", time.Since(began), i)
	}
	ask(t.Context(), b, request(true)).fails(t, backends.KindUpstream, "upstream_unreachable")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := b.WaitReady(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("WaitReady = %v", err)
	}
}

// TestKeyFile changes the key while the backend runs.
func TestKeyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old\n")
	seen := make(chan string, 1000)
	f := newFar(t, nil)
	f.lists(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Authorization")
		_, _ = io.WriteString(w, modelList)
	})
	c := config(f.URL)
	c.APIKey, c.APIKeyFile = "", file
	var log syncBuffer
	startLogged(t, c, &log)
	for want := "Bearer old"; want != ""; {
		switch got := <-seen; {
		case got != want:
		case want == "Bearer old":
			write("")
			write("new")
			want = "Bearer new"
		default:
			want = ""
		}
	}
}

func TestNewRefuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for words, change := range map[string]func(*Config){
		"id is missing":            func(c *Config) { c.Model = "" },
		"takes an address such as": func(c *Config) { c.URL = "127.0.0.1:8081" },
		"can't be read":            func(c *Config) { c.URL = "http://x\x00" },
		"has a user in it":         func(c *Config) { c.URL = "http://u:" + secret + "@x/v1" },
		"no server gets":           func(c *Config) { c.URL = "http://x/v1#" + "a" },
		"beside api_key":           func(c *Config) { c.APIKeyFile = "f" },
		"a key with spaces":        func(c *Config) { c.APIKey = secret + " " },
		"read api_key_file":        func(c *Config) { c.APIKey, c.APIKeyFile = "", "no-such-file" },
		"is empty":                 func(c *Config) { c.APIKey, c.APIKeyFile = "", empty },
		"is no name of a header":   func(c *Config) { c.Headers = map[string]string{"a b": "c"} },
		"Content-Length, which the gateway sets itself": func(c *Config) { c.Headers = map[string]string{"content-length": "1"} },
		"no header can have":                            func(c *Config) { c.Headers = map[string]string{"a": secret + "\n"} },
		"Authorization beside a key":                    func(c *Config) { c.Headers = map[string]string{"authorization": "Basic x"} },
		"connect is 0s":                                 func(c *Config) { c.Timeouts.Connect = 0 },
		"first_byte is -1s":                             func(c *Config) { c.Timeouts.FirstByte = -time.Second },
		"idle is 0s":                                    func(c *Config) { c.Timeouts.Idle = 0 },
		"total is 0s":                                   func(c *Config) { c.Timeouts.Total = 0 },
	} {
		c := config("http://x/v1")
		change(&c)
		b, err := New(c, Deps{})
		if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), secret) {
			t.Errorf("New = %v, %v; want an error with %q", b, err, words)
		}
	}
}
