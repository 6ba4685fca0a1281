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
	prompt string // field that holds the prompt, for errors about it
	read   func(*api.Body, sampler.Params) (*api.Call, error)
	chunks func(api.Head) chunker
	whole  func(api.Head) wholer
}

func chatFormat() format {
	return format{
		prefix: "chatcmpl-", prompt: "messages", read: (*api.Body).Chat,
		chunks: func(h api.Head) chunker { return api.NewChatReply(h) },
		whole:  func(h api.Head) wholer { return api.NewChatReply(h) },
	}
}

func textFormat() format {
	return format{
		prefix: "cmpl-", prompt: "prompt", read: (*api.Body).Completion,
		chunks: func(h api.Head) chunker { return api.NewTextReply(h) },
		whole:  func(h api.Head) wholer { return api.NewTextReply(h) },
	}
}

// infer answers with a generation.
func (s *Server) infer(f format) gin.HandlerFunc {
	return func(c *gin.Context) {
		call, job, err := s.prepare(c, f)
		if err != nil {
			s.fail(c, err)
			return
		}
		head := api.Head{ID: job.ID, Model: job.Model, Created: s.deps.Now().Unix(), Fingerprint: "qr-" + s.cfg.Version}
		if call.Stream {
			s.stream(c, job, f.chunks(head), call.IncludeUsage)
		} else {
			s.collect(c, job, f.whole(head))
		}
	}
}

// prepare takes a request to the point where it can be queued. Everything wrong about it is found here.
func (s *Server) prepare(c *gin.Context, f format) (*api.Call, dispatch.Job, error) {
	none := dispatch.Job{}
	body, err := s.body(c)
	if err != nil {
		return nil, none, err
	}
	id, err := body.Model()
	if err != nil {
		return nil, none, err
	}
	b, defaults, ok := s.deps.Models.Backend(id)
	if !ok {
		return nil, none, s.unknownModel(id)
	}
	recordOf(c).out.Model = id
	call, err := f.read(body, defaults)
	if err != nil {
		return nil, none, err
	}
	recordOf(c).out.Stream = call.Stream
	if err := s.chooseSource(&call.Request.Params); err != nil {
		return nil, none, err
	}
	call.Request.ID = f.prefix + s.deps.NewID()
	p, err := s.tokenise(c.Request.Context(), b, call.Request)
	if err != nil {
		return nil, none, rename(ended(c.Request.Context(), err), f.prompt)
	}
	return call, dispatch.Job{ID: call.Request.ID, Key: callerKey(c.Request), Model: id, Prepared: p}, nil
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

// collect answers in one piece.
func (s *Server) collect(c *gin.Context, job dispatch.Job, w wholer) {
	rec := recordOf(c)
	sink := &collector{timeline: timeline{rec: rec, now: s.deps.Now}}
	res, err := s.deps.Dispatcher.Do(c.Request.Context(), job, sink)
	if err != nil {
		s.fail(c, ended(c.Request.Context(), err))
		return
	}
	rec.out.Result = res
	s.reply(c, http.StatusOK, w.Whole(sink.content.String(), sink.reasoning.String(), res))
}

// stream answers in chunks.
func (s *Server) stream(c *gin.Context, job dispatch.Job, chunks chunker, includeUsage bool) {
	rec := recordOf(c)
	rec.stream = api.NewStream(c.Writer, s.cfg.WriteTimeout)
	defer rec.stream.Close()
	ctx, cancel := context.WithCancelCause(c.Request.Context())
	defer cancel(nil)
	sink := newStreamer(timeline{rec: rec, now: s.deps.Now}, rec.stream, chunks)
	defer sink.keepAlive(ctx, s.cfg.KeepAlive, cancel)()
	res, err := s.deps.Dispatcher.Do(ctx, job, sink)
	if err != nil {
		s.fail(c, ended(ctx, err))
		return
	}
	rec.out.Result = res
	if err := sink.end(res, includeUsage); err != nil {
		s.fail(c, ended(ctx, err))
	}
}
