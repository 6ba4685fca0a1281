package openai

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"qr-gateway/backends"
)

// TestRefusals holds what becomes of each status and form of error.
func TestRefusals(t *testing.T) {
	const asJSON, page, plain = "application/json", "text/html", "text/plain"
	for name, c := range map[string]struct {
		status  int
		kind    string
		body    string
		want    backends.Kind
		code    string
		param   string
		message string
		ran     bool // it may have
	}{
		"as OpenAI tells it": {
			400, asJSON, `{"error":{"message":"'x' is too high","type":"invalid_request_error","param":"temperature","code":"bad_value"}}`,
			backends.KindInvalid, "bad_value", "temperature", "'x' is too high", false,
		},
		"context": {
			400, asJSON, `{"error":{"code":400,"message":"request (300 tokens) exceeds the available context size (256 tokens)","type":"exceed_context_size_error","n_ctx":256}}`,
			backends.KindTooLong, "context_length_exceeded", "", "request (300 tokens) exceeds the available context size (256 tokens)", false,
		},
		"context, as OpenAI tells it": {
			400, asJSON, `{"error":{"message":"too long","code":"context_length_exceeded"}}`, backends.KindTooLong, "context_length_exceeded", "", "too long", false,
		},
		"unknown model":           {404, asJSON, `{"error":{"message":"model 'there' not found","type":"api_error","param":null,"code":null}}`, backends.KindInvalid, "invalid_value", "", "model 'there' not found", false},
		"validation of FastAPI":   {422, asJSON, `{"detail":[{"loc":["body","n"],"msg":"too high"}]}`, backends.KindInvalid, "invalid_value", "", `[{"loc":["body","n"],"msg":"too high"}]`, false},
		"text of FastAPI":         {400, asJSON, `{"detail":"no"}`, backends.KindInvalid, "invalid_value", "", "no", false},
		"text of Ollama":          {400, asJSON, `{"error":"invalid options"}`, backends.KindInvalid, "invalid_value", "", "invalid options", false},
		"a message":               {400, asJSON, `{"object":"error","message":"no n"}`, backends.KindInvalid, "invalid_value", "", "no n", false},
		"as vLLM told it":         {400, asJSON, `{"object":"error","message":"bad n","type":"BadRequestError","param":"n","code":400}`, backends.KindInvalid, "invalid_value", "n", "bad n", false},
		"too large":               {413, page, "<html>", backends.KindInvalid, "invalid_value", "", "refuses the request: status 413 Request Entity Too Large, with a page for browsers", false},
		"no reason":               {400, plain, "", backends.KindInvalid, "invalid_value", "", "refuses the request: status 400 Bad Request", false},
		"wrong key":               {401, asJSON, `{"error":{"message":"Incorrect API key provided: ` + secret + `"}}`, backends.KindUpstream, "upstream_key_refused", "", "refuses the gateway's key", false},
		"forbidden":               {403, page, "<html>", backends.KindUpstream, "upstream_key_refused", "", "refuses the gateway's key", false},
		"no money":                {402, asJSON, `{"error":{"message":"top up"}}`, backends.KindUpstream, "upstream_error", "", "top up", false},
		"wrong address":           {404, page, "<!DOCTYPE html><p>nginx", backends.KindUpstream, "upstream_not_found", "", "has no API at its configured address: status 404 Not Found, with a page for browsers", false},
		"wrong address, in text":  {405, plain, "405 method not allowed", backends.KindUpstream, "upstream_not_found", "", "status 405 Method Not Allowed, 405 method not allowed", false},
		"limit":                   {429, asJSON, `{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`, backends.KindLimited, "rate_limit_exceeded", "", "slow down", false},
		"limit without a reason":  {429, page, "<html>", backends.KindLimited, "upstream_rate_limit", "", "takes no more requests for now: status 429", false},
		"broken":                  {500, asJSON, `{"error":{"message":"CUDA error, key ` + secret + `"}}`, backends.KindUpstream, "upstream_error", "", "failed: CUDA error, key (key)", true},
		"bad gateway":             {502, page, "\n<html>nginx</html>", backends.KindUpstream, "upstream_error", "", "failed: status 502 Bad Gateway, with a page for browsers", true},
		"loading":                 {503, asJSON, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, backends.KindUpstream, "upstream_unavailable", "", "takes no requests now: Loading model", false},
		"too slow":                {504, plain, "", backends.KindUpstream, "upstream_error", "", "failed: status 504 Gateway Timeout", true},
		"too slow, as Azure says": {408, asJSON, `{"error":{"message":"The operation was timeout."}}`, backends.KindUpstream, "upstream_error", "", "failed: The operation was timeout.", true},
		"not there":               {501, plain, "", backends.KindUpstream, "upstream_error", "", "failed: status 501 Not Implemented", false},
		"overloaded":              {529, asJSON, `{"error":{"message":"Overloaded"}}`, backends.KindUpstream, "upstream_error", "", "failed: Overloaded", false},
		"too early":               {425, plain, "", backends.KindUpstream, "upstream_error", "", "failed: status 425 Too Early", false},
		"elsewhere":               {302, page, "<html>", backends.KindUpstream, "upstream_protocol_error", "", "sent what is no answer: status 302 Found", false},
		"a refusal as an answer":  {200, asJSON, `{"error":{"message":"Loading model","code":503}}`, backends.KindUpstream, "upstream_unavailable", "", "takes no requests now: Loading model", false},
		"an error with a status":  {200, asJSON, `{"error":{"message":"CUDA error","code":500}}`, backends.KindUpstream, "upstream_error", "", "failed: CUDA error", true},
		"no upstream":             {503, plain, "no healthy upstream", backends.KindUpstream, "upstream_unavailable", "", "status 503 Service Unavailable, no healthy upstream", false},
		"nothing":                 {204, plain, "", backends.KindUpstream, "upstream_protocol_error", "", "status 204 No Content", true},
		"a page":                  {200, page, "<html>", backends.KindUpstream, "upstream_protocol_error", "", "a page for browsers", true},
		"an error as an answer":   {200, asJSON, `{"error":{"message":"no","code":"c"}}`, backends.KindUpstream, "c", "", "failed: no", true},
		"no choices":              {200, asJSON, `{"id":"x"}`, backends.KindUpstream, "upstream_protocol_error", "", "it has no choices", true},
		"empty choices":           {200, asJSON, `{"id":"x","choices":[]}`, backends.KindUpstream, "upstream_protocol_error", "", "it has no choices", true},
		"half a reply":            {200, asJSON, `{"id":"x","choices":[{`, backends.KindUpstream, "upstream_protocol_error", "", "unexpected end of JSON", true},
	} {
		t.Run(name, func(t *testing.T) {
			b := ready(t, config(newFar(t, answers(c.status, c.kind, c.body)).URL))
			e := ask(t.Context(), b, request(false)).failure(t, c.want, c.code)
			if e.Param != c.param || !strings.Contains(e.Message, c.message) {
				t.Errorf("error about %q: %q", e.Param, e.Message)
			}
			if e.MayHaveRun != c.ran {
				t.Errorf("it may have run: %t, want %t", e.MayHaveRun, c.ran)
			}
			ours := e.Kind == backends.KindInvalid && e.Message == c.message || e.Kind == backends.KindTooLong
			if !ours && !strings.Contains(e.Message, "model here") {
				t.Errorf("%q doesn't name the model", e.Message)
			}
		})
	}
}

// TestWrongForm has streams where a whole reply was asked for, and the other way round.
func TestWrongForm(t *testing.T) {
	b := ready(t, config(newFar(t, streams(someChunk, lastChunk, done)).URL))
	ask(t.Context(), b, request(false)).fails(t, backends.KindUpstream, "upstream_protocol_error")
	b = ready(t, config(newFar(t, answers(200, "application/json", `{"choices":[{}]}`)).URL))
	ask(t.Context(), b, request(true)).fails(t, backends.KindUpstream, "upstream_protocol_error")
	b = ready(t, config(newFar(t, answers(200, "application/json", `{"error":{"message":"no","type":"invalid_request_error"}}`)).URL))
	ask(t.Context(), b, request(true)).fails(t, backends.KindInvalid, "invalid_value")
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "7", 7 * time.Second},
		{"Retry-After", "0.5", 500 * time.Millisecond},
		{"Retry-After", "Wed, 01 Jan 2020 00:01:00 GMT", time.Minute},
		{"Retry-After", "Wed, 01 Jan 2019 00:01:00 GMT", 0},
		{"Retry-After", "-5", 0},
		{"Retry-After", "1e300", time.Hour},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "soon", 0},
		{"Retry-After-Ms", "250", 250 * time.Millisecond},
		{"X", "1", 0},
	} {
		if got := retryAfter(http.Header{c.name: {c.value}}, now); got != c.want {
			t.Errorf("%s: %s is %s, want %s", c.name, c.value, got, c.want)
		}
	}
	b := ready(t, config(newFar(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		answers(429, "application/json", `{}`)(w, r)
	}).URL))
	if e := ask(t.Context(), b, request(true)).failure(t, backends.KindLimited, "upstream_rate_limit"); e.RetryAfter != 7*time.Second {
		t.Errorf("to be tried again after %s", e.RetryAfter)
	}
}

// TestUnreachable holds the words for servers that are not there.
func TestUnreachable(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	tlsServer := httptest.NewUnstartedServer(nil)
	tlsServer.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	tlsServer.Config.ErrorLog = newFar(t, nil).Config.ErrorLog
	tlsServer.StartTLS()
	defer tlsServer.Close()
	for url, words := range map[string]string{
		closed.URL:                       "it refuses connections",
		tlsServer.URL:                    "its certificate can't be verified",
		"http://no-such-host.invalid/v1": "its name can't be resolved",
		strings.Replace(newFar(t, streams()).URL, "http:", "https:", 1): "it doesn't speak TLS",
	} {
		b := start(t, config(url))
		p := &backends.Prepared{Request: request(true)}
		var o outcome
		o.res, o.err = b.Generate(t.Context(), p, func(backends.Event) error { return nil })
		if e := o.failure(t, backends.KindUpstream, "upstream_unreachable"); !strings.Contains(e.Message, words) {
			t.Errorf("%s: %q, want %q", url, e.Message, words)
		}
		until(t, b, "unreachable", func(i backends.Info) bool { return i.State == "unreachable" && !i.Ready && i.Reason == words })
		e := ask(t.Context(), b, request(true)).failure(t, backends.KindUpstream, "upstream_unreachable")
		if !strings.Contains(e.Message, "is away: "+words) {
			t.Errorf("%s: prepare says %q", url, e.Message)
		}
	}
}
