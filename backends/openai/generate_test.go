package openai

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
)

// TestStream holds that chunks pass as they are, but for the model, and what is told of them.
func TestStream(t *testing.T) {
	f := newFar(t, streams(
		": waiting\n\n",
		"event: message\nid: 7\nretry: 10\ndata: {\"id\":\"x\", \"object\":\"o\",\"created\":1,\"model\":\"there\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"<é>\"},\"finish_reason\":null}],\"big\":12345678901234567890}\r\n\r\n",
		"data:{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}],\"id\":\"x\",\"object\":\"o\",\"created\":1}\n\n",
		"data: {\"id\":\"x\",\"object\":\"o\",\"created\":1,\"model\":\"there\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":2},\"cost\":0.10}}\n\n",
		"data: [DONE]\n\n",
	))
	b := ready(t, config(f.URL+"/v1/"))
	o := ask(t.Context(), b, request(true))
	if o.err != nil {
		t.Fatal(o.err)
	}
	want := []string{
		`{"id":"x", "object":"o","created":1,"model":"here","choices":[{"index":0,"delta":{"content":"<é>"},"finish_reason":null}],"big":12345678901234567890}`,
		`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"id":"x","object":"o","created":1,"model":"here"}`,
		`{"id":"x","object":"o","created":1,"model":"here","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":2},"cost":0.10}}`,
	}
	if diff := cmp.Diff(want, o.raw); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
	result := &backends.Result{Reason: "tool_calls", Usage: backends.Usage{PromptTokens: 5, CompletionTokens: 7, CachedTokens: 2}}
	if diff := cmp.Diff(result, o.res); diff != "" || o.started != 1 {
		t.Errorf("result (-want +got), started %d times:\n%s", o.started, diff)
	}
	f.checkAsked(t)
}

// checkAsked holds what the server was sent.
func (f *far) checkAsked(t *testing.T) {
	t.Helper()
	r, body := f.last()
	if want := strings.Replace(string(request(true).Raw), `"here"`, `"there"`, 1); string(body) != want {
		t.Errorf("the server got %s\nwant %s", body, want)
	}
	if r.URL.Path != "/v1/chat/completions" || r.Method != http.MethodPost {
		t.Errorf("it was a %s of %s", r.Method, r.URL.Path)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer " + secret, "Content-Type": "application/json", "Accept": "text/event-stream",
		"X-Request-Id": "chatcmpl-1", "Accept-Encoding": "",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestWhole(t *testing.T) {
	const reply = `{ "id":"x","choices":[{"index":0,"message":{"content":"a","new":1.50},"finish_reason":"length"}],"usage":{"prompt_tokens":5,"completion_tokens":7},"model":"there" }`
	f := newFar(t, answers(200, "application/json", reply))
	c := config(f.URL + "/v1?version=2")
	c.APIKey, c.Headers = "", map[string]string{"api-key": "k", "user-agent": "mine"}
	o := ask(t.Context(), ready(t, c), request(false))
	if o.err != nil {
		t.Fatal(o.err)
	}
	got := o.raw[0]
	if !strings.HasPrefix(got, `{ "id":"x","choices":[{"index":0,"message":{"content":"a","new":1.50},"finish_reason":"length"}],"usage":{"prompt_tokens":5,"completion_tokens":7},"model":"here" ,"created":`) ||
		!strings.HasSuffix(got, `,"object":"chat.completion"}`) {
		t.Errorf("reply is %s", got)
	}
	if o.res.Reason != backends.ReasonLength || o.res.Usage.CompletionTokens != 7 {
		t.Errorf("result is %+v", o.res)
	}
	r, _ := f.last()
	if r.Header.Get("Api-Key") != "k" || r.Header.Get("User-Agent") != "mine" || r.Header.Get("Authorization") != "" || r.URL.RawQuery != "version=2" {
		t.Errorf("the server got %s %v", r.URL, r.Header)
	}
}

const (
	someChunk = `data: {"id":"x","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}` + "\n\n"
	lastChunk = `data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	done      = "data: [DONE]\n\n"
)

// TestEnds holds which ends of a stream are ends.
func TestEnds(t *testing.T) {
	two := strings.Replace(lastChunk, `"index":0`, `"index":1`, 1)
	for name, c := range map[string]struct {
		events []string
		kind   backends.Kind
		code   string
	}{
		"the word":                             {events: []string{someChunk, lastChunk, done}},
		"the word without its line":            {events: []string{someChunk, lastChunk, "data: [DONE]"}},
		"a reason, but no word":                {events: []string{someChunk, lastChunk}},
		"the word, but no reason":              {events: []string{someChunk, done}},
		"nothing":                              {nil, backends.KindLost, "upstream_lost"},
		"comments":                             {[]string{": a\n\n"}, backends.KindLost, "upstream_lost"},
		"neither":                              {[]string{someChunk}, backends.KindLost, "upstream_lost"},
		"one of two choices":                   {[]string{someChunk, two}, backends.KindLost, "upstream_lost"},
		"the word alone":                       {[]string{done}, backends.KindUpstream, "upstream_protocol_error"},
		"no JSON":                              {[]string{"data: hello\n\n", done}, backends.KindUpstream, "upstream_protocol_error"},
		"no JSON later":                        {[]string{someChunk, "data: {\"choices\n\n", done}, backends.KindUpstream, "upstream_protocol_error"},
		"no choices":                           {[]string{"data: {\"id\":\"x\"}\n\n", done}, backends.KindUpstream, "upstream_protocol_error"},
		"choices of another type":              {[]string{"data: {\"choices\":{}}\n\n", done}, backends.KindUpstream, "upstream_protocol_error"},
		"a list":                               {[]string{"data: []\n\n", done}, backends.KindUpstream, "upstream_protocol_error"},
		"two objects":                          {[]string{"data: {\"choices\":[]}{}\n\n", done}, backends.KindUpstream, "upstream_protocol_error"},
		"an event too long":                    {[]string{"data: " + strings.Repeat(" ", eventLimit+1) + "\n\n"}, backends.KindUpstream, "upstream_protocol_error"},
		"an error":                             {[]string{`data: {"error":{"message":"out of memory","code":500}}` + "\n\n"}, backends.KindUpstream, "upstream_error"},
		"an error of the client":               {[]string{`data: {"error":{"message":"bad","type":"invalid_request_error","code":"c"}}` + "\n\n"}, backends.KindInvalid, "c"},
		"an error with a status":               {[]string{`data: {"error":{"message":"too long","type":"exceed_context_size_error","code":400}}` + "\n\n"}, backends.KindTooLong, "context_length_exceeded"},
		"an error without an object around it": {[]string{`data: {"object":"error","message":"too long","type":"BadRequestError","code":400}` + "\n\n"}, backends.KindInvalid, "invalid_value"},
		"an error later":                       {[]string{someChunk, `data: {"error":{"message":"out of memory","code":"oom"}}` + "\n\n", done}, backends.KindLost, "oom"},
		"an error that is text":                {[]string{`data: {"error":"no"}` + "\n\n"}, backends.KindUpstream, "upstream_error"},
		"an error beside empty choices":        {[]string{`data: {"choices":[],"error":{"message":"no"}}` + "\n\n"}, backends.KindUpstream, "upstream_error"},
	} {
		t.Run(name, func(t *testing.T) {
			b := ready(t, config(newFar(t, streams(c.events...)).URL))
			o := ask(t.Context(), b, request(true))
			if c.kind != "" {
				o.fails(t, c.kind, c.code)
				return
			}
			if o.err != nil || o.res.Reason == "" && name != "the word, but no reason" {
				t.Errorf("it came to %+v, %v", o.res, o.err)
			}
		})
	}
}

// TestNoEndBehindTheEnd has a server that says the word and then holds the connection.
func TestNoEndBehindTheEnd(t *testing.T) {
	leave := make(chan struct{})
	defer close(leave)
	b := ready(t, config(newFar(t, func(w http.ResponseWriter, r *http.Request) {
		streams(someChunk, lastChunk, done)(w, r)
		<-leave
	}).URL))
	began := time.Now()
	if o := ask(t.Context(), b, request(true)); o.err != nil || o.res.Reason != "stop" || time.Since(began) > 5*time.Second {
		t.Errorf("after %s it came to %+v, %v", time.Since(began), o.res, o.err)
	}
}

// TestCutOff closes the connection in the middle of everything.
func TestCutOff(t *testing.T) {
	cut := func(before ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if len(before) > 0 {
				streams(before...)(w, r)
			}
			panic(http.ErrAbortHandler)
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		message string
	}{
		"before the status": {cut(), "before it answered"},
		"before a chunk":    {cut(": hi\n\n"), "before it answered"},
		"after a chunk":     {cut(someChunk), "before the end of the answer"},
		"in a chunk":        {cut(someChunk, "data: {\"id"), "before the end of the answer"},
		"in a whole refusal": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusBadRequest)
			panic(http.ErrAbortHandler)
		}, "before it answered"},
	} {
		t.Run(name, func(t *testing.T) {
			b := ready(t, config(newFar(t, c.handler).URL))
			e := ask(t.Context(), b, request(true)).failure(t, backends.KindLost, "upstream_lost")
			if !strings.Contains(e.Message, c.message) || !strings.Contains(e.Message, "model here") || !errors.Is(e, backends.ErrLost) {
				t.Errorf("error is %q", e)
			}
		})
	}
}

// TestTimeouts has a server that goes silent in each phase.
func TestTimeouts(t *testing.T) {
	leave := make(chan struct{})
	hang := func(before ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if len(before) > 0 {
				streams(before...)(w, r)
			}
			select {
			case <-r.Context().Done():
			case <-leave:
			}
		}
	}
	defer close(leave)
	trickle := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			streams(someChunk)(w, r)
		}
	}
	const short = 60 * time.Millisecond
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		stream  bool
		set     func(*Timeouts)
		code    string
	}{
		"first byte":        {hang(), true, func(l *Timeouts) { l.FirstByte = short }, "first_byte_timeout"},
		"idle":              {hang(someChunk), true, func(l *Timeouts) { l.Idle = short }, "idle_timeout"},
		"idle after a line": {hang(": hi\n"), true, func(l *Timeouts) { l.Idle = short }, "idle_timeout"},
		"idle in a whole":   {hang("{"), false, func(l *Timeouts) { l.Idle = short }, "idle_timeout"},
		"total":             {trickle, true, func(l *Timeouts) { l.Total = short }, "total_timeout"},
		"total of a whole":  {hang(), false, func(l *Timeouts) { l.Total, l.FirstByte = short, time.Nanosecond }, "total_timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(newFar(t, c.handler).URL)
			c.set(&cfg.Timeouts)
			began := time.Now()
			e := ask(t.Context(), ready(t, cfg), request(c.stream)).failure(t, backends.KindTimeout, c.code)
			if took := time.Since(began); took > 5*time.Second || !strings.Contains(e.Message, "model here") {
				t.Errorf("%q after %s", e, took)
			}
		})
	}
}

// TestConnectTimeout has a server that takes connections and never says a word of TLS, and one that can't be dialled in time.
func TestConnectTimeout(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for url, limit := range map[string]time.Duration{"https://" + ln.Addr().String(): 60 * time.Millisecond, "http://" + ln.Addr().String(): 1} {
		c := config(url)
		c.Timeouts.Connect = limit
		var o outcome
		p := &backends.Prepared{Request: request(true)}
		o.res, o.err = start(t, c).Generate(t.Context(), p, func(backends.Event) error { return nil })
		o.fails(t, backends.KindUpstream, "connect_timeout")
	}
}

// TestSlowClient holds that a client that takes its time is no time-out of the server.
func TestSlowClient(t *testing.T) {
	cfg := config(newFar(t, streams(someChunk, someChunk, lastChunk, done)).URL)
	cfg.Timeouts.Idle, cfg.Timeouts.FirstByte = 50*time.Millisecond, 500*time.Millisecond
	b := ready(t, cfg)
	p, err := b.Prepare(t.Context(), request(true))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Generate(t.Context(), p, func(e backends.Event) error {
		if e.Raw != nil {
			<-time.NewTimer(150 * time.Millisecond).C
		}
		return nil
	})
	if err != nil {
		t.Errorf("Generate = %v", err)
	}
}

// TestReuse holds that a connection serves many requests.
func TestReuse(t *testing.T) {
	f := newFar(t, streams(someChunk, lastChunk, done))
	c := config(f.URL)
	c.Health.Interval = time.Hour
	b := ready(t, c)
	for range 50 {
		if o := ask(t.Context(), b, request(true)); o.err != nil {
			t.Fatal(o.err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns > 2 {
		t.Errorf("%d connections for 50 requests in a row", f.conns)
	}
}

// TestEmitFails holds that the connection is closed when nobody takes the answer.
func TestEmitFails(t *testing.T) {
	left := make(chan struct{})
	b := ready(t, config(newFar(t, func(w http.ResponseWriter, r *http.Request) {
		streams(someChunk)(w, r)
		<-r.Context().Done()
		close(left)
	}).URL))
	p, err := b.Prepare(t.Context(), request(true))
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("nobody is there")
	_, err = b.Generate(t.Context(), p, func(e backends.Event) error {
		if e.Raw != nil {
			return full
		}
		return nil
	})
	if !errors.Is(err, full) {
		t.Errorf("Generate = %v, want emit's error", err)
	}
	<-left
}

// TestNotFollowed holds that the key stays where it belongs.
func TestNotFollowed(t *testing.T) {
	other := newFar(t, answers(200, "application/json", `{"choices":[{}]}`))
	f := newFar(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	ask(t.Context(), ready(t, config(f.URL)), request(false)).fails(t, backends.KindUpstream, "upstream_protocol_error")
	if other.asked != nil {
		t.Error("the request went on to where the server pointed")
	}
}

func TestPrepare(t *testing.T) {
	b := ready(t, config(newFar(t, streams()).URL))
	for name, c := range map[string]struct {
		body     string
		estimate int
		most     int
	}{
		"nothing said":        {`{"model":"here"}` + strings.Repeat(" ", 384), 100, 512},
		"old name":            {`{"max_tokens":7}`, 4, 7},
		"both names":          {`{"max_tokens":7,"max_completion_tokens":9.0}`, 11, 9},
		"several choices":     {`{"max_tokens":7,"n":3}`, 5, 21},
		"nonsense":            {`{"max_tokens":"7","n":-1}`, 6, 512},
		"more than there are": {`{"max_tokens":1e300}` + strings.Repeat(" ", 1<<20), 1 << 17, 1 << 17},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(false)
			r.Raw = []byte(c.body)
			p, err := b.Prepare(t.Context(), r)
			if err != nil || p.Estimate != c.estimate || p.MaxTokens != c.most || p.Cost() != c.estimate+c.most || p.Request != r {
				t.Errorf("Prepare = %+v, %v", p, err)
			}
		})
	}
	if _, err := b.Prepare(t.Context(), &backends.Request{}); err == nil {
		t.Error("a request in another form was taken")
	}
}

// TestHuge passes a body of 6.5 MB on, and a reply of 6.5 MB back.
func TestHuge(t *testing.T) {
	text := strings.Repeat("0123456789", 5<<17)
	b := ready(t, config(newFar(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"`+text+`"}}]}`)
	}).URL))
	r := request(false)
	r.Raw = []byte(`{"model":"here","messages":["` + text + `"]}`)
	o := ask(context.Background(), b, r)
	if o.err != nil || len(o.raw[0]) < len(text) {
		t.Errorf("it came to %d pieces, %v", len(o.raw), o.err)
	}
}
