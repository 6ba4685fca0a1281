package llama

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"qr-gateway/backends"
	pb "qr-gateway/backends/llama/enginepb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeEngine plays an engine process inside the test: a real gRPC server on the real socket.
type fakeEngine struct {
	pb.UnimplementedEngineServiceServer
	load    func() error  // answer to Load; nil is yes
	idle    time.Duration // as Stats says
	mute    bool          // Stats never answers
	polite  bool          // ends on Terminate
	server  *grpc.Server
	done    chan struct{}
	once    sync.Once
	err     error
	killed  bool
	release chan struct{} // Generate waits for it, but for the warm-up
	linger  chan struct{} // the end of the process is seen once it is closed; nil: at once
}

func (e *fakeEngine) Load(context.Context, *pb.LoadRequest) (*pb.LoadResponse, error) {
	if e.load != nil {
		return nil, e.load()
	}
	return &pb.LoadResponse{Context: 100, Workers: 2, Memory: "attention"}, nil
}

func (e *fakeEngine) Stats(ctx context.Context, _ *pb.StatsRequest) (*pb.StatsResponse, error) {
	if e.mute {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &pb.StatsResponse{IdleMs: e.idle.Milliseconds(), Ready: true}, nil
}

func (e *fakeEngine) Prepare(context.Context, *pb.PrepareRequest) (*pb.PrepareResponse, error) {
	return &pb.PrepareResponse{Tokens: []int32{1, 2, 3}, Stops: []string{"</s>"}}, nil
}

func (e *fakeEngine) Generate(req *pb.GenerateRequest, stream pb.EngineService_GenerateServer) error {
	if req.RequestId != "warm-up" && e.release != nil {
		select {
		case <-e.release:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
	_ = stream.Send(&pb.GenerateResponse{Event: &pb.GenerateResponse_Delta{Delta: &pb.Delta{Content: "hi", Tokens: []int32{5}}}})
	return stream.Send(&pb.GenerateResponse{Event: &pb.GenerateResponse_Finished{Finished: &pb.Finished{
		Reason: "stop", CompletionTokens: 1, StatsJson: []byte(`{"decoder":"plain"}`),
	}}})
}

func (e *fakeEngine) serve(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	e.server, e.done = grpc.NewServer(), make(chan struct{})
	healthpb.RegisterHealthServer(e.server, health.NewServer())
	pb.RegisterEngineServiceServer(e.server, e)
	go func() {
		_ = e.server.Serve(l)
		if e.linger != nil {
			<-e.linger
		}
		close(e.done)
	}()
	return nil
}

// exit ends the fake as a crash does.
func (e *fakeEngine) exit(err error) {
	e.once.Do(func() {
		e.err = err
		go e.server.Stop()
	})
}

func (e *fakeEngine) Done() <-chan struct{} { return e.done }
func (e *fakeEngine) Err() error            { return e.err }
func (e *fakeEngine) Kill()                 { e.killed = true; e.exit(errors.New("killed")) }
func (e *fakeEngine) Terminate() {
	if e.polite {
		e.exit(nil)
	}
}

// script hands out fake engines, one for each start; after the last, polite ones.
type script struct {
	mu      sync.Mutex // guards all below
	engines []*fakeEngine
	started []*fakeEngine
	err     error
}

func (s *script) Launch(socket string) (Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	e := &fakeEngine{polite: true}
	if len(s.engines) > 0 {
		e, s.engines = s.engines[0], s.engines[1:]
	}
	s.started = append(s.started, e)
	return e, e.serve(socket)
}

func (s *script) starts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.started)
}

func fakeBackend(t *testing.T, s *script) *Backend {
	t.Helper()
	cfg := DefaultConfig()
	cfg.ID, cfg.Model = "fake", "fake.gguf"
	cfg.BackoffMin, cfg.BackoffMax, cfg.Grace = time.Millisecond, 10*time.Millisecond, 20*time.Millisecond
	cfg.StallTimeout, cfg.WaitReady = 100*time.Millisecond, 5*time.Second
	b, err := New(cfg, Deps{Log: slog.New(slog.DiscardHandler), Launcher: s})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// running runs b until the test ends.
func running(t *testing.T, b *Backend) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

func generate(t *testing.T, b *Backend) error {
	t.Helper()
	_, _, err := answer(t.Context(), b, request("hello", 1, 5))
	return err
}

func TestServes(t *testing.T) {
	b := fakeBackend(t, &script{})
	if i := b.Info(); i.Ready || i.State != "starting" {
		t.Errorf("before Run: %+v", i)
	}
	running(t, b)
	if err := generate(t, b); err != nil {
		t.Fatal(err)
	}
	if i := b.Info(); !i.Ready || i.State != "ready" || i.Context != 100 || i.Workers != 2 {
		t.Errorf("info %+v", i)
	}
	p, err := b.Prepare(t.Context(), request("x", 1, 5000))
	if err != nil || p.MaxTokens != 97 || len(p.Stops) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestCrashIsFollowedByARestart(t *testing.T) {
	first := &fakeEngine{release: make(chan struct{})}
	s := &script{engines: []*fakeEngine{first}}
	b := fakeBackend(t, s)
	running(t, b)
	if err := b.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost := make(chan error)
	go func() { lost <- generate(t, b) }()
	go first.exit(errors.New("signal: aborted: GGML_ASSERT"))
	if err := <-lost; !errors.Is(err, backends.ErrLost) && err != nil {
		t.Errorf("request under way: %v", err)
	}
	if err := generate(t, b); err != nil {
		t.Errorf("request after the crash: %v", err)
	}
	if b.Restarts() != 1 {
		t.Errorf("%d restarts", b.Restarts())
	}
}

// TestRequestsDoNotMeetADeadEngine: between the end of the connection and that of the process the state is still ready.
func TestRequestsDoNotMeetADeadEngine(t *testing.T) {
	first := &fakeEngine{linger: make(chan struct{})}
	b := fakeBackend(t, &script{engines: []*fakeEngine{first}})
	b.cfg.StallTimeout = time.Minute
	running(t, b)
	p, err := b.Prepare(t.Context(), request("x", 1, 5))
	if err != nil {
		t.Fatal(err)
	}
	first.server.Stop()
	time.AfterFunc(20*time.Millisecond, func() { close(first.linger) })
	_, err = b.Generate(t.Context(), p, func(backends.Event) error { return nil })
	if err != nil || b.Restarts() != 1 {
		t.Errorf("%v after %d restarts", err, b.Restarts())
	}
}

func TestStuckEngineIsKilled(t *testing.T) {
	for name, e := range map[string]*fakeEngine{
		"says that it is idle while busy": {idle: time.Hour},
		"says nothing":                    {mute: true},
	} {
		s := &script{engines: []*fakeEngine{e}}
		b := fakeBackend(t, s)
		running(t, b)
		if err := b.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-e.done
		if err := generate(t, b); err != nil || !e.killed || s.starts() != 2 {
			t.Errorf("%s: %v, killed %v, %d starts", name, err, e.killed, s.starts())
		}
	}
}

func TestBadModelIsPermanent(t *testing.T) {
	bad := func() error {
		return pb.ToStatus(&backends.Error{Kind: backends.KindInvalid, Code: pb.CodeModelFile, Message: "load model x.gguf: not a GGUF file"})
	}
	s := &script{engines: []*fakeEngine{{load: bad, polite: true}}}
	b := fakeBackend(t, s)
	if err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "x.gguf") {
		t.Errorf("got %v", err)
	}
	if i := b.Info(); i.State != "failed" || s.starts() != 1 {
		t.Errorf("%+v, %d starts", i, s.starts())
	}
	var e *backends.Error
	if err := b.WaitReady(t.Context()); !errors.As(err, &e) || e.Kind != backends.KindUnavailable {
		t.Errorf("waiting for a failed backend: %v", err)
	}
}

func TestBadModelLaterIsTriedAgain(t *testing.T) {
	bad := func() error {
		return pb.ToStatus(&backends.Error{Kind: backends.KindInvalid, Code: pb.CodeModelFile, Message: "file is gone"})
	}
	first := &fakeEngine{polite: true}
	s := &script{engines: []*fakeEngine{first, {load: bad, polite: true}, {load: bad, polite: true}}}
	b := fakeBackend(t, s)
	running(t, b)
	if err := b.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.exit(errors.New("crashed"))
	<-first.done
	if err := generate(t, b); err != nil || s.starts() != 4 {
		t.Errorf("%v after %d starts", err, s.starts())
	}
}

func TestEnginesThatDieAtOnce(t *testing.T) {
	dies := func() error { return status.Error(codes.Internal, "boom") }
	s := &script{engines: []*fakeEngine{{load: dies, polite: true}, {load: dies, polite: true}, {load: dies, polite: true}}}
	if err := fakeBackend(t, s).Run(t.Context()); err == nil || s.starts() != firstLives {
		t.Errorf("%v after %d starts, want to give up after %d", err, s.starts(), firstLives)
	}
	s = &script{err: errors.New("no such file")}
	if err := fakeBackend(t, s).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no program: %v", err)
	}
}

// TestBrokenLoadTellsWhatTheProcessSaid: the connection breaks before the end of the process is seen.
func TestBrokenLoadTellsWhatTheProcessSaid(t *testing.T) {
	s := &script{}
	for range firstLives {
		e := &fakeEngine{}
		e.load = func() error {
			time.AfterFunc(20*time.Millisecond, func() { e.exit(errors.New("signal: aborted: GGML_ASSERT(n > 0) failed")) })
			return status.Error(codes.Unavailable, "error reading from server: EOF")
		}
		s.engines = append(s.engines, e)
	}
	err := fakeBackend(t, s).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "fake.gguf") || !strings.Contains(err.Error(), "GGML_ASSERT") {
		t.Errorf("got %v, want the file and what the process said", err)
	}
}

func TestRequestsWaitForAnEngineAndNoLonger(t *testing.T) {
	b := fakeBackend(t, &script{})
	b.cfg.WaitReady = 10 * time.Millisecond
	var e *backends.Error
	if err := generate(t, b); !errors.As(err, &e) || e.Kind != backends.KindUnavailable {
		t.Errorf("nobody runs the backend: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Prepare(ctx, request("x", 1, 5)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestTextThatIsNotUTF8IsRefused: the protocol can't carry it, which must not pass for the death of an engine.
func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	b := fakeBackend(t, &script{})
	running(t, b)
	bad := "a\xffb"
	text, stop := request("x", 1, 5), request("x", 1, 5)
	text.Text, stop.Stop = &bad, []string{"fine", bad}
	for param, req := range map[string]*backends.Request{"prompt": text, "stop": stop} {
		_, err := b.Prepare(t.Context(), req)
		var e *backends.Error
		if !errors.As(err, &e) || e.Kind != backends.KindInvalid || e.Param != param {
			t.Errorf("%s: got %v", param, err)
		}
	}
}

func TestCancelEndsTheCall(t *testing.T) {
	b := fakeBackend(t, &script{engines: []*fakeEngine{{release: make(chan struct{}), polite: true}}})
	running(t, b)
	p, err := b.Prepare(t.Context(), request("x", 1, 5))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(5*time.Millisecond, cancel)
	if _, err := b.Generate(ctx, p, func(backends.Event) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestEmitErrorEndsTheCall(t *testing.T) {
	b := fakeBackend(t, &script{})
	running(t, b)
	p, err := b.Prepare(t.Context(), request("x", 1, 5))
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("client gone")
	if _, err := b.Generate(t.Context(), p, func(backends.Event) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}
