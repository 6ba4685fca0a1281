package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"qr-gateway/backends"
	"qr-gateway/gateway/api"
	"qr-gateway/sampler"
)

// Outcome is what became of one request.
type Outcome struct {
	Method   string
	Route    string // as registered, e.g. /v1/models/*id; empty for none
	Model    string // served id, or empty before it is known to exist
	Status   int    // HTTP status; that of the error for a stream that failed; 499 for a client that left
	Code     string // of the error, or empty
	Stream   bool
	Joined   bool          // the answer is that of a request sent before
	Duration time.Duration // from the request's headers to the reply's end

	QueueWait  time.Duration    // from queueing to a worker; 0 if it came to neither
	FirstToken time.Duration    // from the request's headers to the first text; 0 if there was none
	Result     *backends.Result // of a generation that ended well, else nil
}

// record follows one request for the log, the metrics and the error replies.
type record struct {
	out       Outcome
	requestID string
	began     time.Time
	queued    time.Time
	digest    string // of a request that may be sent again
	first     string // id of the request that this one repeats
	origin    api.Origin
	given     []sampler.Setting // parameters that the request gave
	stream    *api.Stream       // once the reply is one
	err       error
}

const recordKey = "qr.record"

func recordOf(c *gin.Context) *record { return c.MustGet(recordKey).(*record) }

// requestIDHeader is read and sent back.
const requestIDHeader = "X-Request-Id"

// trace is the outermost middleware.
func (s *Server) trace(c *gin.Context) {
	rec := &record{began: s.deps.Now(), requestID: c.GetHeader(requestIDHeader)}
	if !validRequestID(rec.requestID) {
		rec.requestID = "req_" + s.deps.NewID()
	}
	c.Set(recordKey, rec)
	c.Header(requestIDHeader, rec.requestID)
	rec.out.Method, rec.out.Route = c.Request.Method, c.FullPath()
	c.Next()
	s.finish(c, rec)
}

func (s *Server) finish(c *gin.Context, rec *record) {
	if rec.out.Status == 0 {
		rec.out.Status = c.Writer.Status()
	}
	rec.out.Duration = s.deps.Now().Sub(rec.began)
	if s.deps.Observer != nil {
		s.deps.Observer.Observe(rec.out)
	}
	s.log(c, rec)
}

func (s *Server) log(c *gin.Context, rec *record) {
	attrs := []slog.Attr{
		slog.String("request_id", rec.requestID), slog.String("method", rec.out.Method), slog.String("path", clip(c.Request.URL.Path)),
		slog.Int("status", rec.out.Status), slog.Duration("duration", rec.out.Duration),
	}
	if rec.out.Model != "" {
		attrs = append(attrs, slog.String("model", rec.out.Model), slog.Bool("stream", rec.out.Stream))
	}
	if rec.first != "" {
		attrs = append(attrs, slog.String("repeats", rec.first))
	}
	attrs = append(attrs, rec.source()...)
	if r := rec.out.Result; r != nil {
		attrs = append(attrs, slog.Int("prompt_tokens", r.Usage.PromptTokens), slog.Int("completion_tokens", r.Usage.CompletionTokens))
	}
	if rec.err != nil {
		attrs = append(attrs, slog.String("code", rec.out.Code), slog.String("error", cause(rec.err)))
	}
	s.deps.Log.LogAttrs(c.Request.Context(), level(rec.out), "request", attrs...)
}

// source is where the request comes from and what it asks for, as far as it says so.
func (r *record) source() (attrs []slog.Attr) {
	for _, a := range []slog.Attr{
		slog.String("client", r.origin.Client), slog.String("task", r.origin.Task),
		slog.String("chat_id", r.origin.ChatID), slog.String("message_id", r.origin.MessageID),
	} {
		if a.Value.String() != "" {
			attrs = append(attrs, a)
		}
	}
	set := make([]any, len(r.given))
	for i, p := range r.given {
		set[i] = slog.Any(strings.TrimPrefix(p.Key, "qr_"), brief(p.Value))
	}
	return append(attrs, slog.Group("qr", set...))
}

// clip keeps a client's text from filling the log.
func clip(text string) string {
	const most = 256
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// brief is a parameter's value as the log has it: of an object only its size.
func brief(v any) any {
	if object, ok := v.(map[string]any); ok {
		return fmt.Sprintf("%d entries", len(object))
	}
	return v
}

func level(o Outcome) slog.Level {
	switch {
	case o.Route == readyPath:
		return slog.LevelDebug // its 503 is an answer, not a failure
	case o.Status >= http.StatusInternalServerError:
		return slog.LevelError
	case !strings.HasPrefix(o.Route, "/v1/"):
		return slog.LevelDebug // probes and scrapes come every few seconds
	default:
		return slog.LevelInfo
	}
}

// cause prefers the reason behind an error to what the client was told.
func cause(err error) string {
	var told *api.Error
	if errors.As(err, &told) && told.Err != nil {
		err = told.Err
	}
	text := err.Error()
	var failed *backends.Error
	if errors.As(err, &failed) && failed.Err != nil && !strings.Contains(text, failed.Err.Error()) {
		text += ": " + failed.Err.Error()
	}
	return text
}

func validRequestID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for _, b := range []byte(id) {
		if b <= ' ' || b > '~' {
			return false
		}
	}
	return true
}

// recover turns a panic into a 500, or into the last event of a stream.
func (s *Server) recover(c *gin.Context) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(v)
		}
		s.deps.Log.Error("handler panicked", "request_id", recordOf(c).requestID, "panic", v, "stack", string(debug.Stack()))
		s.fail(c, api.Panicked(recordOf(c).requestID))
	}()
	c.Next()
}

// fail answers with an error, in whatever form can still reach the client.
func (s *Server) fail(c *gin.Context, err error) {
	rec := recordOf(c)
	e := api.FromError(err, rec.requestID)
	e.NoRetry = e.NoRetry || rec.out.FirstToken > 0 // the model has run, whatever ended that
	rec.err, rec.out.Status, rec.out.Code = e, e.Status, e.Code
	c.Abort()
	switch {
	case e.Status == api.StatusClientClosed:
	case rec.stream != nil && rec.stream.Started():
		_ = rec.stream.Fail(e) // a client that left meanwhile needs no error
	case !c.Writer.Written():
		s.bound(c)
		_ = api.WriteError(c.Writer, e) // as above
	}
}

// bound puts the write deadline on a reply in one piece. net/http buffers a reply, so the deadline has to stay until the
// handler has returned; every later reply on the connection sets its own.
func (s *Server) bound(c *gin.Context) {
	ctl := http.NewResponseController(c.Writer)
	_ = ctl.SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout)) // a writer without deadlines, as in tests, has no client to get stuck
}
