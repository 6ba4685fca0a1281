package http

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	stdhttp "net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc/certs"
)

// Source draws from a service. It implements [entropy.Source], [entropy.Prober] and io.Closer.
type Source struct {
	cfg    Config
	name   string
	api    api
	host   string
	header stdhttp.Header
	key    secret
	client *stdhttp.Client
	budget *budget
	blocks atomic.Uint64

	// until ties a caller's context to the life of the source; cancel ends that.
	until  func(context.Context) (context.Context, func())
	cancel context.CancelFunc
	mu     sync.Mutex // guards closed, and that no draw begins after it
	closed bool
	draws  sync.WaitGroup
}

// Open checks the configuration, the key and the certificates. Nothing is sent before the first draw or probe.
func Open(_ context.Context, name string, cfg Config) (*Source, error) {
	fail := func(err error) error {
		return &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "open service", Err: err}
	}
	if err := cfg.Validate(); err != nil {
		return nil, fail(err)
	}
	a, _ := find(cfg.API) // was checked
	cfg.URL = cmp.Or(cfg.URL, a.url)
	key, err := cfg.key()
	if err != nil {
		return nil, fail(err)
	}
	client, err := newClient(cfg)
	if err != nil {
		return nil, fail(err)
	}
	u, _ := url.Parse(fill(cfg.URL, 1, 1)) // was checked
	s := &Source{cfg: cfg, name: name, api: a, host: u.Host, key: key, client: client, header: stdhttp.Header{"User-Agent": {"qr-gateway"}, "Cache-Control": {"no-store"}}}
	if key != "" {
		s.header.Set(cmp.Or(cfg.APIKeyHeader, a.header), cfg.APIKeyPrefix+string(key))
	}
	if cfg.Body != "" {
		s.header.Set("Content-Type", "application/json")
	}
	s.budget = &budget{perMinute: max(0, cmp.Or(cfg.RequestsPerMinute, a.perMinute))}
	life, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.until = func(ctx context.Context) (context.Context, func()) {
		ctx, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(life, cancel)
		return ctx, func() { stop(); cancel() }
	}
	return s, nil
}

// newClient makes a client that goes to one host and no further.
func newClient(cfg Config) (*stdhttp.Client, error) {
	transport := &stdhttp.Transport{
		Proxy:                  stdhttp.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: cfg.Timeout}).DialContext,
		TLSHandshakeTimeout:    cfg.Timeout,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
	}
	if cfg.TLSCA+cfg.TLSCert+cfg.TLSKey+cfg.TLSServerName != "" {
		if u, err := url.Parse(fill(cfg.URL, 1, 1)); err != nil || u.Scheme != "https" {
			return nil, errors.New("tls options are set, but the url is not https")
		}
	}
	secure, err := certs.Client(certs.Files{CA: cfg.TLSCA, Cert: cfg.TLSCert, Key: cfg.TLSKey}, cfg.TLSServerName, time.Now())
	if err != nil {
		return nil, fmt.Errorf("read TLS files: %w", err)
	}
	transport.TLSClientConfig = secure
	return &stdhttp.Client{Transport: transport, CheckRedirect: sameHost}, nil
}

// maxRedirects within one host.
const maxRedirects = 3

var errRedirect = errors.New("redirect refused")

// sameHost refuses to go elsewhere: a key, and the trust in the bytes, belong to one host.
func sameHost(req *stdhttp.Request, via []*stdhttp.Request) error {
	first := via[0].URL
	if req.URL.Scheme != first.Scheme || req.URL.Host != first.Host {
		return fmt.Errorf("%w: it leads to another host or scheme, %s://%s; set that as the url if it is right", errRedirect, req.URL.Scheme, req.URL.Host)
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("%w: more than %d in a row", errRedirect, maxRedirects)
	}
	return nil
}

// Draw implements [entropy.Source]. A long draw takes several calls, one after the other.
func (s *Source) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	b := entropy.Block{Bytes: buf, Source: s.name, Requested: time.Now(), Class: s.api.class(s.cfg)}
	if err := ctx.Err(); err != nil {
		return entropy.Block{}, fmt.Errorf("draw %d bytes from %s: %w", len(buf), s.name, err)
	}
	if len(buf) > maxDraw {
		return entropy.Block{}, s.fail(entropy.KindRefused, nil, fmt.Sprintf("a draw of %d bytes is more than %d", len(buf), maxDraw))
	}
	if len(buf) > 0 {
		if err := s.draw(ctx, buf, &b); err != nil {
			return entropy.Block{}, err
		}
	}
	b.Arrived, b.Sequence = time.Now(), s.blocks.Add(1)
	return b, nil
}

func (s *Source) draw(ctx context.Context, buf []byte, b *entropy.Block) error {
	if !s.begin() {
		return s.fail(entropy.KindClosed, nil, "it was closed")
	}
	defer s.draws.Done()
	limit := s.api.limit(s.cfg)
	if err := s.afford((len(buf) + limit - 1) / limit); err != nil {
		return err
	}
	own, done := s.until(ctx)
	defer done()
	for len(buf) > 0 {
		n := min(len(buf), limit)
		a, err := s.call(own, s.api.plan(s.cfg, n))
		if err != nil {
			return s.explain(ctx, own, err)
		}
		copy(buf, a.data)
		b.Device, b.Shots = a.device, b.Shots+a.sent
		buf = buf[n:]
	}
	return nil
}

// begin counts a draw in, unless the source was closed.
func (s *Source) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.draws.Add(1)
	}
	return !s.closed
}

// afford takes the calls of a draw from the budget, all or none: a draw that can't be finished would waste them.
func (s *Source) afford(calls int) error {
	wait, ok := s.budget.take(time.Now(), calls)
	if ok {
		return nil
	}
	e := s.fail(entropy.KindQuota, nil, fmt.Sprintf("its quota is used up for another %v; nothing was sent", wait.Round(time.Millisecond)))
	if wait == 0 {
		e = s.fail(entropy.KindQuota, nil, fmt.Sprintf("a draw takes %d calls, and it allows %d a minute", calls, s.budget.perMinute))
	}
	e.Hint = "ask for fewer bytes per token, or raise requests_per_minute if the plan allows more"
	return e
}

// explain makes the error of a draw.
func (s *Source) explain(caller, own context.Context, err error) error {
	e, ours := errors.AsType[*entropy.Error](err)
	switch {
	case caller.Err() != nil:
		return fmt.Errorf("draw from %s: %w", s.name, caller.Err())
	case own.Err() != nil:
		return s.fail(entropy.KindClosed, nil, "it was closed")
	case ours:
		return e
	case errors.Is(err, errRedirect):
		return s.fail(entropy.KindProtocol, withoutURL(err), "call "+s.host)
	case isUntrusted(err):
		e = s.fail(entropy.KindConfig, withoutURL(err), "trust the certificate of "+s.host)
		e.Hint = "set tls_ca to the certificate of its authority, or tls_server_name to the name it is for"
		return e
	case errors.Is(err, context.DeadlineExceeded) || isTimeout(err):
		return s.fail(entropy.KindTimeout, nil, fmt.Sprintf("no answer from %s within %v", s.host, s.cfg.Timeout))
	}
	return s.fail(entropy.KindTransport, withoutURL(err), "call "+s.host)
}

func isUntrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

// withoutURL takes the URL out of an error: a query may hold what belongs to nobody.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

func (s *Source) fail(kind entropy.Kind, err error, message string) *entropy.Error {
	return &entropy.Error{Kind: kind, Source: s.name, Message: message, Err: err}
}

// Probe implements [entropy.Prober]. It makes a call, unless calls are counted.
func (s *Source) Probe(ctx context.Context) (entropy.Capabilities, error) {
	caps := entropy.Capabilities{
		Device: s.cfg.Source, Class: s.api.class(s.cfg),
		Details: map[string]string{"api": s.cfg.API, "host": s.host, "limit": strconv.Itoa(s.api.limit(s.cfg)) + " bytes a call"},
	}
	if s.budget.perMinute > 0 {
		caps.Details["requests_per_minute"] = strconv.Itoa(s.budget.perMinute)
		caps.Details["probe"] = "made no call: they are counted"
		return caps, nil
	}
	if s.api.name == "openentropy" {
		if err := s.probeOpen(ctx, caps.Details); err != nil {
			return entropy.Capabilities{}, err
		}
	}
	_, err := s.Draw(ctx, make([]byte, 16))
	if err != nil {
		return entropy.Capabilities{}, err
	}
	return caps, nil
}

// Close ends all draws and waits for them. It may be called more than once.
func (s *Source) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.draws.Wait()
	s.client.CloseIdleConnections()
	return nil
}
