package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"qr-gateway/backends"
	"qr-gateway/gateway/api"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/sampler"
)

// chunker makes the chunks of a stream.
type chunker interface {
	First() any // before all others; nil for none
	Delta(backends.Event) any
	End(res *backends.Result, includeUsage bool) []any
}

// wholer makes a reply in one piece.
type wholer interface {
	Whole(content, reasoning string, res *backends.Result) any
}

// format is what differs between the two ways to ask.
type format struct {
	prefix string // of ids
	path   string // below the version, for a request that is passed on
	prompt string // field that holds the prompt, for errors about it
	read   func(*api.Body, sampler.Params) (*api.Call, error)
	chunks func(*api.Head) chunker
	whole  func(*api.Head) wholer
}

func chatFormat() format {
	return format{
		prefix: "chatcmpl-", path: api.ChatPath, prompt: "messages", read: (*api.Body).Chat,
		chunks: func(h *api.Head) chunker { return api.NewChatReply(h) },
		whole:  func(h *api.Head) wholer { return api.NewChatReply(h) },
	}
}

func textFormat() format {
	return format{
		prefix: "cmpl-", path: api.CompletionPath, prompt: "prompt", read: (*api.Body).Completion,
		chunks: func(h *api.Head) chunker { return api.NewTextReply(h) },
		whole:  func(h *api.Head) wholer { return api.NewTextReply(h) },
	}
}

// infer answers with a generation.
func (s *Server) infer(f format) gin.HandlerFunc {
	return func(c *gin.Context) {
		a, err := s.prepare(c, f)
		if err != nil {
			s.fail(c, err)
			return
		}
		if a.raw() {
			f.chunks = func(*api.Head) chunker { return verbatim{} }
		}
		if a.call.Stream {
			s.stream(c, a, f)
		} else {
			s.collect(c, a, f)
		}
	}
}

// prepare takes a request to the point where it can be queued. Everything wrong about it is found here.
func (s *Server) prepare(c *gin.Context, f format) (*answer, error) {
	body, err := s.body(c)
	if err != nil {
		return nil, err
	}
	a := &answer{base: s.baseURL(c.Request)}
	if a.origin, err = body.Origin(c.Request.Header); err != nil {
		return nil, err
	}
	recordOf(c).origin = a.origin
	repeat, err := api.Repeat(c.Request.Header)
	if err != nil {
		return nil, err
	}
	b, err := s.read(c, f, body, a)
	if err != nil {
		return nil, err
	}
	req := a.call.Request
	if a.chosen() {
		if err := s.chooseSource(&req.Params); err != nil {
			return nil, err
		}
	}
	req.ID = f.prefix + s.deps.NewID()
	p, err := s.tokenise(c.Request.Context(), b, req)
	if err != nil {
		return nil, rename(ended(c.Request.Context(), err), f.prompt)
	}
	a.job = dispatch.Job{
		ID: req.ID, Key: callerKey(c.Request), Model: req.Model, Task: a.origin.Task != "", Prepared: p, Resumes: b.Info().Resumes,
		Repeat: repeat, Digest: recordOf(c).digest,
	}
	a.head = api.Head{
		ID: req.ID, Model: req.Model, Created: s.deps.Now().Unix(), Fingerprint: "qr-" + s.cfg.Version,
		Task: a.origin.Task, Brief: a.origin.Client != "",
	}
	return a, nil
}

// read reads the call for the model that it names, or has an alias of, and finds its backend.
func (s *Server) read(c *gin.Context, f format, body *api.Body, a *answer) (backends.Backend, error) {
	named, err := body.Model()
	if err != nil {
		return nil, err
	}
	id, b, defaults, ok := s.model(named)
	if !ok {
		return nil, s.unknownModel(named)
	}
	rec := recordOf(c)
	rec.out.Model = id
	if a.origin.Task != "" && s.cfg.PlainTasks {
		body.Plain()
	}
	switch info := b.Info(); {
	case info.Samples:
		a.call, err = body.Sampled(f.passing(info, id, a.origin.Task), defaults)
	case info.Raw:
		a.call, err = body.Raw(f.passing(info, id, a.origin.Task))
	default:
		a.call, err = f.read(body, defaults)
	}
	if err != nil {
		return nil, err
	}
	a.call.Request.Model = id
	if a.origin.Task != "" && a.call.Request.MaxTokens == 0 {
		a.call.Request.MaxTokens = s.cfg.TaskTokens // most clients set no limit, and a small model may go on for long
	}
	rec.out.Stream, rec.given = a.call.Stream, a.call.Given
	return b, nil
}

// canonical turns an alias of a model into its id, and leaves all else as it is. What the alias for tasks of an alias stands for is the
// alias for tasks of the model.
func (s *Server) canonical(named string) string {
	if id, ok := s.aliases[named]; ok {
		return id
	}
	if base, task := api.BaseModel(named); task && s.aliases[base] != "" {
		return api.TaskModel(s.aliases[base])
	}
	return named
}

// model finds a model by its id or by an alias.
func (s *Server) model(named string) (id string, b backends.Backend, defaults sampler.Params, ok bool) {
	named = s.canonical(named)
	if b, defaults, ok = s.deps.Models.Backend(named); ok {
		return named, b, defaults, true
	}
	id, alias := api.BaseModel(named)
	if !alias {
		return named, nil, defaults, false
	}
	b, defaults, ok = s.deps.Models.Backend(id)
	return id, b, defaults, ok
}

func (s *Server) tokenise(ctx context.Context, b backends.Backend, req *backends.Request) (*backends.Prepared, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.PrepareTimeout)
	defer cancel()
	return b.Prepare(ctx, req)
}

// body reads the whole body before anything else: net/http notices that a client left only after that.
func (s *Server) body(c *gin.Context) (*api.Body, error) {
	ctl := http.NewResponseController(c.Writer)
	_ = ctl.SetReadDeadline(time.Now().Add(s.cfg.BodyTimeout)) // as in bound
	raw, err := api.ReadBody(c.Request.Body, c.Request.ContentLength, s.cfg.BodyLimit)
	if err != nil {
		c.Header("Connection", "close")
		if api.FromError(err, "").Status == http.StatusRequestEntityTooLarge {
			discard(ctl, c.Request)
		}
		return nil, err
	}
	_ = ctl.SetReadDeadline(time.Time{}) // else it would end a long reply
	if c.GetHeader(api.RepeatHeader) != "" {
		recordOf(c).digest = api.Digest(c.FullPath(), raw)
	}
	body, err := api.Parse(raw)
	if err != nil {
		return nil, err
	}
	return body.WithPresets(s.deps.Presets), nil
}

const (
	discardBytes = 64 << 20
	discardTime  = 2 * time.Second
)

// discard reads on, within limits, what a client sends of a body that is refused. A connection that is closed under a client
// that still writes is reset, and the refusal is lost with it. One that waits to be told to go on sends nothing more.
func discard(ctl *http.ResponseController, r *http.Request) {
	if r.Header.Get("Expect") != "" {
		return
	}
	_ = ctl.SetReadDeadline(time.Now().Add(discardTime)) // as in bound
	_, _ = io.CopyN(io.Discard, r.Body, discardBytes)    // how it ends makes no difference
}

// rename makes an error about the prompt name the field that this request has.
func rename(err error, prompt string) error {
	var e *backends.Error
	if !errors.As(err, &e) || e.Param != "messages" && e.Param != "prompt" {
		return err
	}
	out := *e
	out.Param = prompt
	return &out
}

// ended prefers the reason for which a context ended to the fact that it did.
func ended(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil {
		return why
	}
	return err
}

// callerKey tells callers apart for fairness. It holds no secret.
func callerKey(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && token != "" {
		sum := sha256.Sum256([]byte(token))
		return "key:" + hex.EncodeToString(sum[:8])
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return "addr:" + host
}

func (s *Server) timeline(c *gin.Context, a *answer) timeline {
	return timeline{rec: recordOf(c), now: s.deps.Now, header: c.Writer.Header(), head: &a.head}
}

// collect answers in one piece.
func (s *Server) collect(c *gin.Context, a *answer, f format) {
	rec := recordOf(c)
	sink := &collector{timeline: s.timeline(c, a)}
	who, ctx, done := attend(c, &a.job)
	defer done()
	who.Sink = sink
	res, err := s.deps.Dispatcher.Do(ctx, a.job, who)
	if err != nil {
		s.fail(c, ended(ctx, err))
		return
	}
	rec.out.Result = res
	s.keep(a, rec.requestID, res)
	if who.left.Load() {
		s.fail(c, ended(c.Request.Context(), errClientGone))
		return
	}
	if res, err = a.complete(res); err != nil {
		s.fail(c, err)
		return
	}
	if a.raw() {
		s.replyRaw(c, append(sink.raw, res.Last...)) // one of them is there
		return
	}
	s.reply(c, http.StatusOK, f.whole(&a.head).Whole(sink.content.String(), sink.reasoning.String(), res))
}

// stream answers in chunks.
func (s *Server) stream(c *gin.Context, a *answer, f format) {
	rec := recordOf(c)
	rec.stream = api.NewStream(c.Writer, s.cfg.WriteTimeout)
	defer rec.stream.Close()
	who, ctx, done := attend(c, &a.job)
	defer done()
	sink := newStreamer(s.timeline(c, a), rec.stream, func() chunker { return f.chunks(&a.head) })
	who.Sink = sink
	defer sink.keepAlive(ctx, s.cfg.KeepAlive, who.leave)()
	res, err := s.deps.Dispatcher.Do(ctx, a.job, who)
	if err != nil {
		s.fail(c, ended(ctx, err))
		return
	}
	rec.out.Result = res
	s.keep(a, rec.requestID, res)
	if who.left.Load() {
		s.fail(c, ended(c.Request.Context(), errClientGone))
		return
	}
	if res, err = a.complete(res); err != nil {
		s.fail(c, err)
		return
	}
	if err := sink.end(res, a.call.IncludeUsage); err != nil {
		s.fail(c, ended(ctx, err))
	}
}
