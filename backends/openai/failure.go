package openai

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"qr-gateway/backends"
)

// Hints: what to do, by who can.
const (
	tryLater = "try again later"
	tryAgain = "send the request again"
	operator = "whoever runs the gateway has to look into it"
)

// fail is an error about the server, which is named by its model alone. One that is lost, or takes too long, had the request.
func (b *Backend) fail(kind backends.Kind, code, what, hint string, cause error) *backends.Error {
	return &backends.Error{
		Kind: kind, Code: code, Message: "the upstream of model " + b.cfg.Model + " " + what, Hint: hint, Err: cause,
		MayHaveRun: kind == backends.KindLost || kind == backends.KindTimeout,
	}
}

// Nonsense is for an answer that is none. What made it may have been the model all the same.
func (b *Backend) Nonsense(err error) *backends.Error {
	e := b.fail(backends.KindUpstream, "upstream_protocol_error", "sent what is no answer: "+b.scrub(short(err.Error())), operator, err)
	e.MayHaveRun = true
	return e
}

// broken is for a connection that failed. begun says that the client has part of the answer.
func (b *Backend) broken(err error, begun bool) *backends.Error {
	switch {
	case begun:
		return b.fail(backends.KindLost, "upstream_lost", "closed the connection before the end of the answer", tryAgain, err)
	case tookTooLong(err):
		return b.fail(backends.KindUpstream, "connect_timeout", "took no connection within "+b.cfg.Timeouts.Connect.String(), tryLater, err)
	case neverConnected(err):
		return b.fail(backends.KindUpstream, "upstream_unreachable", "can't be reached: "+unreachable(err), tryLater, err)
	default:
		return b.fail(backends.KindLost, "upstream_lost", "closed the connection before it answered", tryAgain, err)
	}
}

// neverConnected says that nothing of the request can have arrived.
func neverConnected(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns) || badCertificate(err) || noTLS(err)
}

func tookTooLong(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" && op.Timeout()
}

func noTLS(err error) bool {
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, new(tls.RecordHeaderError))
}

func badCertificate(err error) bool {
	var (
		check *tls.CertificateVerificationError
		who   x509.UnknownAuthorityError
		name  x509.HostnameError
	)
	return errors.As(err, &check) || errors.As(err, &who) || errors.As(err, &name)
}

// unreachable says why in words that show no address.
func unreachable(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return "its name can't be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "it refuses connections"
	case badCertificate(err):
		return "its certificate can't be verified"
	case noTLS(err):
		return "it doesn't speak TLS"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "it takes no connection in time"
	default:
		return "the connection fails"
	}
}

// errorLimit bounds what is read of a refusal, in bytes, and textLimit what is shown of it.
const (
	errorLimit = 64 << 10
	textLimit  = 2 << 10
)

// refused is for a reply with another status than 200.
func (b *Backend) refused(resp *http.Response, body io.Reader) error {
	raw, err := io.ReadAll(io.LimitReader(body, errorLimit))
	if err != nil {
		return b.broken(err, false)
	}
	d := describe(raw)
	cause := fmt.Errorf("status %d: %s", resp.StatusCode, b.scrub(short(string(raw))))
	e := b.byStatus(resp.StatusCode, d, cause)
	if e.Kind == backends.KindLimited || e.Kind == backends.KindUpstream {
		e.RetryAfter = retryAfter(resp.Header, time.Now())
	}
	return e
}

// byStatus makes the error of a status.
func (b *Backend) byStatus(status int, d description, cause error) *backends.Error {
	e := b.refusal(status, d, cause)
	e.MayHaveRun = mayHaveRun(status)
	return e
}

// overloaded is the status by which some servers refuse what they have no room for.
const overloaded = 529

// mayHaveRun says whether a server that replies with status may have run the model. A gateway, or a proxy between, can't know what came of it.
func mayHaveRun(status int) bool {
	switch status {
	case http.StatusNotImplemented, http.StatusServiceUnavailable, http.StatusHTTPVersionNotSupported, overloaded:
		return false
	case http.StatusRequestTimeout: // some say so when the model took too long
		return true
	}
	return status < http.StatusMultipleChoices || status >= http.StatusInternalServerError
}

// refusal decides who is to act on a refusal. Only what is wrong with the request itself is the client's.
func (b *Backend) refusal(status int, d description, cause error) *backends.Error {
	words := b.words(status, d)
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return b.fail(backends.KindUpstream, "upstream_key_refused", "refuses the gateway's key", "whoever runs the gateway has to set another with api_key or api_key_file", cause)
	case status == http.StatusTooManyRequests:
		return b.fail(backends.KindLimited, cmp.Or(d.code, "upstream_rate_limit"), "takes no more requests for now: "+words, tryLater, cause)
	case status == http.StatusServiceUnavailable:
		return b.fail(backends.KindUpstream, "upstream_unavailable", "takes no requests now: "+words, tryLater, cause)
	case status >= http.StatusInternalServerError, status == http.StatusPaymentRequired, status == http.StatusProxyAuthRequired,
		status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return b.fail(backends.KindUpstream, "upstream_error", "failed: "+words, tryLater, cause)
	case status < http.StatusBadRequest:
		return b.fail(backends.KindUpstream, "upstream_protocol_error", "sent what is no answer: "+words, operator, cause)
	case d.message == "" && (status == http.StatusNotFound || status == http.StatusMethodNotAllowed):
		return b.fail(backends.KindUpstream, "upstream_not_found", "has no API at its configured address: "+words, operator, cause)
	case d.message == "":
		return b.invalid(d, "the upstream of model "+b.cfg.Model+" refuses the request: "+words, cause)
	default:
		return b.invalid(d, words, cause)
	}
}

// invalid is for a request that is wrong, in the server's own words.
func (b *Backend) invalid(d description, words string, cause error) *backends.Error {
	e := &backends.Error{Kind: backends.KindInvalid, Code: cmp.Or(d.code, "invalid_value"), Param: d.param, Message: words, Err: cause}
	if d.kind == "exceed_context_size_error" || d.code == "context_length_exceeded" {
		e.Kind, e.Code = backends.KindTooLong, "context_length_exceeded"
	}
	return e
}

// told is for an error that came where an answer was due. begun says that the client has part of the answer.
func (b *Backend) told(raw json.RawMessage, begun bool) *backends.Error {
	d := describe([]byte(`{"error":` + string(raw) + `}`))
	cause := errors.New(b.scrub(short(string(raw))))
	switch {
	case begun:
		return b.fail(backends.KindLost, cmp.Or(d.code, "upstream_error"), "failed: "+b.words(0, d), tryAgain, cause)
	case d.status >= http.StatusBadRequest:
		return b.byStatus(d.status, d, cause)
	case d.kind == "invalid_request_error":
		return b.invalid(d, b.words(0, d), cause)
	default:
		e := b.fail(backends.KindUpstream, cmp.Or(d.code, "upstream_error"), "failed: "+b.words(0, d), tryLater, cause)
		e.MayHaveRun = true
		return e
	}
}

// words are what the server says, or else what its status means.
func (b *Backend) words(status int, d description) string {
	if d.message != "" {
		return b.scrub(short(d.message))
	}
	text := strings.TrimSpace(fmt.Sprintf("status %d %s", status, http.StatusText(status)))
	switch {
	case status == 0:
		text = "no reason given"
	case d.page:
		text += ", with a page for browsers"
	case d.text != "":
		text += ", " + b.scrub(short(d.text))
	}
	return text
}

// description is an error in a server's words.
type description struct {
	message, kind, code, param string
	status                     int // where the error has an HTTP status for its code
	text                       string
	page                       bool // a page for browsers
}

// describe reads the forms in which servers tell errors: OpenAI's, those of FastAPI and of Ollama, and plain text.
func describe(raw []byte) description {
	var body struct {
		Error   json.RawMessage
		Message string
		Detail  json.RawMessage
	}
	if json.Unmarshal(raw, &body) != nil && body.Error == nil {
		text := strings.TrimSpace(string(raw))
		return description{text: text, page: strings.HasPrefix(text, "<")}
	}
	var d description
	switch {
	case body.Error == nil:
		d.read(raw) // vLLM's older form has no object around it
	case json.Unmarshal(body.Error, &d.message) != nil:
		d.read(body.Error)
	}
	d.message = cmp.Or(d.message, body.Message)
	if len(body.Detail) > 0 && d.message == "" && json.Unmarshal(body.Detail, &d.message) != nil {
		d.message = string(body.Detail)
	}
	return d
}

// read reads OpenAI's form. Each part is taken only if it has the right type.
func (d *description) read(raw json.RawMessage) {
	var e struct{ Message, Type, Code, Param json.RawMessage }
	if json.Unmarshal(raw, &e) != nil {
		return
	}
	_ = json.Unmarshal(e.Message, &d.message)
	_ = json.Unmarshal(e.Type, &d.kind)
	_ = json.Unmarshal(e.Param, &d.param)
	if json.Unmarshal(e.Code, &d.status) != nil {
		_ = json.Unmarshal(e.Code, &d.code)
		d.status, _ = strconv.Atoi(d.code)
	}
	if d.status != 0 {
		d.code = ""
	}
}

// scrub takes the key out of what a server says.
func (b *Backend) scrub(text string) string {
	if key := *b.key.Load(); key != "" {
		text = strings.ReplaceAll(text, key, "(key)")
	}
	return text
}

// short bounds what is shown of a server's text.
func short(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if len(text) <= textLimit {
		return text
	}
	cut := textLimit
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}

// mostRetryAfter bounds a wait that a server asks for: a client would sleep through it.
const mostRetryAfter = time.Hour

// retryAfter is how long to wait, as far as the server says so.
func retryAfter(h http.Header, now time.Time) time.Duration {
	seconds := 0.0
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		seconds = ms / 1000
	} else if s, err := strconv.ParseFloat(h.Get("Retry-After"), 64); err == nil {
		seconds = s
	} else if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		seconds = at.Sub(now).Seconds()
	}
	if !(seconds > 0) { // not a number among them
		return 0
	}
	return time.Duration(min(seconds, mostRetryAfter.Seconds()) * float64(time.Second))
}
