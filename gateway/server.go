// Package gateway is the HTTP edge: OpenAI-compatible routes on gin, from the request's bytes to the last chunk. It checks
// and translates; which worker runs a request, and when, is the dispatcher's business.
//
// A [Server] owns its connections and waits for its handlers. One handler goroutine owns each request; a stream has a
// second one that sends keep-alive comments and ends before the handler does. The context of a request ends when its client
// leaves, which cancels the job wherever it is.
//
//	srv, err := gateway.New(cfg, deps)
//	err = srv.Run(ctx)
package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"qr-gateway/backends"
	"qr-gateway/configs/presets"
	"qr-gateway/gateway/api"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/sampler"
)

// Dispatcher queues jobs and runs them.
type Dispatcher interface {
	// Do queues job, runs it and returns when it is terminal. It calls sink from the calling goroutine, in order. When ctx
	// ends the job is cancelled, at whatever stage it is.
	Do(ctx context.Context, job dispatch.Job, sink dispatch.Sink) (*backends.Result, error)
}

// Models are those served. Its methods never wait for an engine.
type Models interface {
	// Backend finds a model by its served id, with the parameters that a request starts from.
	Backend(id string) (b backends.Backend, defaults sampler.Params, ok bool)
	// List describes every model, in the order of the configuration.
	List() []backends.Info
}

// Observer is told of every request when it has ended. It must not block.
type Observer interface {
	Observe(Outcome)
}

// Deps are what the server works with. Metrics, Observer, Sources, Records, Log, NewID and Now may be nil.
type Deps struct {
	Models     Models
	Dispatcher Dispatcher
	Metrics    http.Handler     // serves /metrics
	Observer   Observer         // for metrics of requests
	Sources    Sources          // nil: engines draw from the operating system alone
	Presets    presets.Library  // that a request may name
	Records    Records          // of answers; nil: none are kept
	Cards      map[string]Card  // of models, by their ids; one without is shown by its id
	Log        *slog.Logger     // nil: nothing is logged
	NewID      func() string    // unique ids; nil: random ones
	Now        func() time.Time // wall clock; nil: time.Now
}

// drainGrace is for streams to send their error once the drain timeout is over.
const drainGrace = 2 * time.Second

// Server is the HTTP edge.
type Server struct {
	cfg      Config
	deps     Deps
	started  time.Time
	handler  http.Handler
	aliases  map[string]string // ids of models by their other names
	draining atomic.Bool

	// mu guards closed, and Add on handlers against the Wait that follows closed.
	mu       sync.Mutex
	closed   bool
	handlers sync.WaitGroup
}

// New checks cfg and builds the routes. Nothing is served before Run.
func New(cfg Config, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Models == nil || deps.Dispatcher == nil {
		return nil, errors.New("check server: models and dispatcher are needed")
	}
	s := &Server{cfg: cfg, deps: withDefaults(deps), aliases: map[string]string{}}
	for id, card := range s.deps.Cards {
		for _, alias := range card.Aliases {
			s.aliases[alias] = id
		}
	}
	s.started = s.deps.Now()
	s.handler = cleanPath(s.routes())
	return s, nil
}

func withDefaults(d Deps) Deps {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Sources == nil {
		d.Sources = systemOnly{}
	}
	if d.NewID == nil {
		d.NewID = func() string { return strings.ToLower(rand.Text()) }
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	return d
}

// ServeHTTP answers one request. Run serves through it; tests may call it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		_ = api.WriteError(w, api.FromError(api.ErrShutdown, "")) // the connection is about to be closed
		return
	}
	defer s.handlers.Done()
	s.handler.ServeHTTP(w, r)
}

func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.handlers.Add(1)
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.handlers.Wait()
}

// Run listens and serves until ctx ends, then drains. It returns when every handler has.
func (s *Server) Run(ctx context.Context) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s (another program may have it; choose a different address): %w", s.cfg.Listen, err)
	}
	return s.Serve(ctx, ln)
}

// Serve is Run on a listener that is open already; it closes it.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	base, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	srv := s.httpServer(base)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	s.deps.Log.Info("serving", "address", ln.Addr().String())
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		s.drain(base, srv, abort)
		err = <-ended
	}
	abort(api.ErrShutdown)
	s.leave()
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	return nil
}

func (s *Server) httpServer(base context.Context) *http.Server {
	return &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return context.WithValue(base, serverKey{}, base) },
		ErrorLog:          slog.NewLogLogger(s.deps.Log.Handler(), slog.LevelDebug),
	}
}

// drain lets running requests end, then cancels them and gives their errors time to be sent, then cuts the connections.
func (s *Server) drain(ctx context.Context, srv *http.Server, abort context.CancelCauseFunc) {
	s.draining.Store(true)
	s.deps.Log.Info("stopping; running requests may end first", "timeout", s.cfg.DrainTimeout.String())
	ctx = context.WithoutCancel(ctx)
	if shutdown(ctx, srv, s.cfg.DrainTimeout) == nil {
		return
	}
	s.deps.Log.Warn("cancelling requests that outlived the drain timeout", "timeout", s.cfg.DrainTimeout)
	abort(api.ErrShutdown)
	if shutdown(ctx, srv, drainGrace) != nil {
		_ = srv.Close() // nothing is left to be done about a connection that can't be closed
	}
}

func shutdown(ctx context.Context, srv *http.Server, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return srv.Shutdown(ctx)
}

const readyPath = "/readyz"

// routes builds the table. Paths are documented in the README.
func (s *Server) routes() *gin.Engine {
	gin.SetMode(gin.ReleaseMode) // else gin prints to the terminal
	e := gin.New()
	e.HandleMethodNotAllowed = true
	e.RedirectTrailingSlash = false
	e.Use(s.trace, s.recover, s.cors)
	e.NoRoute(func(c *gin.Context) { s.fail(c, api.NotFound(c.Request.Method, c.Request.URL.Path)) })
	e.NoMethod(func(c *gin.Context) { s.fail(c, api.MethodNotAllowed(c.Request.Method, c.Request.URL.Path)) })

	e.POST("/v1/chat/completions", s.infer(chatFormat()))
	e.POST("/v1/completions", s.infer(textFormat()))
	read(e, "/v1/models", s.listModels)
	read(e, "/v1/models/*id", s.getModel)
	read(e, "/v1/qr/parameters", s.parameters)
	read(e, "/v1/qr/presets", s.presets)
	read(e, "/v1/qr/entropy", s.entropySources)
	read(e, recordsPath+":id", s.getRecord)
	read(e, "/healthz", s.healthz)
	read(e, "/health/entropy", s.healthEntropy)
	read(e, readyPath, s.readyz)
	if s.deps.Metrics != nil {
		read(e, "/metrics", s.metrics)
	}
	return e
}

func (s *Server) metrics(c *gin.Context) {
	s.bound(c)
	s.deps.Metrics.ServeHTTP(c.Writer, c.Request)
}

// read registers what only reports.
func read(e *gin.Engine, path string, h gin.HandlerFunc) {
	e.Match([]string{http.MethodGet, http.MethodHead}, path, h)
}
