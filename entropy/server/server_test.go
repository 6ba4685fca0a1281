package server_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropypb"
	"qr-gateway/entropy/local"
	"qr-gateway/entropy/server"
)

// fixed is a source that does what it is told.
type fixed struct {
	draw   func(ctx context.Context, buf []byte) (entropy.Block, error)
	closed atomic.Bool
	busy   atomic.Int32
	t      *testing.T
}

func (f *fixed) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	f.busy.Add(1)
	defer f.busy.Add(-1)
	if f.closed.Load() {
		f.t.Error("a request meets a closed device")
	}
	return f.draw(ctx, buf)
}

func (f *fixed) Close() error {
	if f.busy.Load() != 0 {
		f.t.Error("the device is closed under a request")
	}
	f.closed.Store(true)
	return nil
}

func get(t *testing.T, cc *grpc.ClientConn, n int32) (*entropypb.EntropyResponse, error) {
	t.Helper()
	return entropypb.NewEntropyServiceClient(cc).GetEntropy(t.Context(), &entropypb.EntropyRequest{BytesNeeded: n, SequenceId: 9})
}

func TestLimits(t *testing.T) {
	s := start(t, nil, func(c *server.Config) { c.MaxBytes, c.NumberBytes = 100, 50 })
	cc := dial(t, s.Addrs()[0])
	for n, ok := range map[int32]bool{1: true, 100: true, 101: false, 0: false, -1: false, math.MaxInt32: false, math.MinInt32: false} {
		_, err := get(t, cc, n)
		if want := map[bool]codes.Code{true: codes.OK, false: codes.InvalidArgument}[ok]; status.Code(err) != want {
			t.Errorf("%d bytes: %v", n, err)
		}
		if !ok && !strings.Contains(err.Error(), "between 1 and 100") {
			t.Errorf("%d bytes: the error does not name the limit: %v", n, err)
		}
	}
	if _, err := entropypb.NewPurityServiceClient(cc).GetDraw(t.Context(), &entropypb.DrawRequest{BlockBytes: 101}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a number of too many bytes: %v", err)
	}
	if _, err := entropypb.NewPurityServiceClient(cc).GetDraw(t.Context(), &entropypb.DrawRequest{SourceId: "x"}); status.Code(err) != codes.NotFound {
		t.Errorf("a number of another source: %v", err)
	}
}

func TestNumbers(t *testing.T) {
	for name, c := range map[string]struct {
		fill func(buf []byte)
		z, u float64
	}{
		"all values once": {func(b []byte) {
			for i := range b {
				b[i] = byte(i)
			}
		}, 0, 0.5},
		"high":     {func(b []byte) { copy(b, strings.Repeat("\xff", len(b))) }, 16 * 127.5 / 73.90027063549903, 1 - 1e-10},
		"low":      {func(b []byte) { clear(b) }, -16 * 127.5 / 73.90027063549903, 1e-10},
		"one over": {func(b []byte) { copy(b, strings.Repeat("\x80", len(b))) }, 16 * 0.5 / 73.90027063549903, 0.5431028951573972},
	} {
		src := &fixed{t: t, draw: func(_ context.Context, buf []byte) (entropy.Block, error) {
			c.fill(buf)
			return entropy.Block{Bytes: buf, Source: "fixed", Class: entropy.ClassReplay}, nil
		}}
		s := start(t, src, func(c *server.Config) { c.NumberBytes, c.SourceID = 256, "lane" })
		d, err := entropypb.NewPurityServiceClient(dial(t, s.Addrs()[0])).GetDraw(t.Context(), &entropypb.DrawRequest{SequenceId: 5, SourceId: "lane"})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(d.GetZ()-c.z) > 1e-9 || math.Abs(d.GetU()-c.u) > 1e-9 || d.GetIntegratedBytes() != 256 || d.GetSourceId() != "lane" || d.GetSequenceId() != 5 {
			t.Errorf("%s: %v, want z %v, u %v", name, d, c.z, c.u)
		}
		if got, want := d.GetU(), math.Erfc(-d.GetZ()/math.Sqrt2)/2; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: u %v is not the normal CDF of z, %v", name, got, want)
		}
	}
}

// TestSourceErrors: what a source says becomes the code that tells callers what to do.
func TestSourceErrors(t *testing.T) {
	var fail error
	block := entropy.Block{}
	src := &fixed{t: t, draw: func(_ context.Context, buf []byte) (entropy.Block, error) {
		b := block
		if b.Bytes == nil {
			b.Bytes = buf
		}
		return b, fail
	}}
	cc := dial(t, start(t, src, nil).Addrs()[0])
	for kind, want := range map[entropy.Kind]codes.Code{
		entropy.KindQuota: codes.ResourceExhausted, entropy.KindHealth: codes.FailedPrecondition, entropy.KindTimeout: codes.DeadlineExceeded,
		entropy.KindTransport: codes.Unavailable, entropy.KindProtocol: codes.Internal, entropy.KindOpen: codes.Unavailable,
	} {
		fail = &entropy.Error{Kind: kind, Source: "dev", Message: "is unwell"}
		if _, err := get(t, cc, 8); status.Code(err) != want || !strings.Contains(err.Error(), "is unwell") {
			t.Errorf("%s: %v, want %s", kind, err, want)
		}
	}
	fail = nil
	block = entropy.Block{Bytes: make([]byte, 3)}
	if _, err := get(t, cc, 8); status.Code(err) != codes.Internal {
		t.Errorf("a short block: %v", err)
	}
	block = entropy.Block{Fallback: true, Source: "other"}
	if _, err := get(t, cc, 8); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "other") {
		t.Errorf("bytes of a second choice: %v", err)
	}
	block = entropy.Block{Bytes: make([]byte, 8), Flags: entropy.FlagDuplicate | entropy.FlagDrift}
	if _, err := get(t, cc, 8); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "duplicate") {
		t.Errorf("flagged bytes: %v", err)
	}
	block.Flags = entropy.FlagDrift
	if _, err := get(t, cc, 8); err != nil {
		t.Errorf("drift: %v", err)
	}
}

// TestSourceOutageIsToldOnce: an outage does not fill the log.
func TestSourceOutageIsToldOnce(t *testing.T) {
	var fail error
	var out bytes.Buffer
	src := &fixed{t: t, draw: func(_ context.Context, buf []byte) (entropy.Block, error) { return entropy.Block{Bytes: buf}, fail }}
	cfg := server.DefaultConfig()
	cfg.Listen = []string{"unix://" + filepath.Join(folder(t), "s")}
	now := time.Unix(0, 0)
	s, err := server.New(cfg, server.Deps{Source: src, Log: slog.New(slog.NewTextHandler(&out, nil)), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	cc := dial(t, s.Addrs()[0])
	fail = errors.New("broken")
	for range 100 {
		if _, err := get(t, cc, 4); err == nil {
			t.Fatal("a broken source serves")
		}
		now = now.Add(time.Second)
	}
	fail = nil
	if _, err := get(t, cc, 4); err != nil {
		t.Error(err)
	}
	s.SetHealthy(false)
	_, err = remote(t, s.Addrs()[0], nil).Probe(t.Context())
	if entropy.KindOf(err) != entropy.KindTransport || !strings.Contains(err.Error(), "NOT_SERVING") {
		t.Errorf("probe of a server that says it is unwell: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for what, want := range map[string]int{"source fails": 1, "still fails": 1, "recovered": 1} {
		if got := strings.Count(out.String(), what); got != want {
			t.Errorf("%q is said %d times, want %d:\n%s", what, got, want, out.String())
		}
	}
}

func TestKeys(t *testing.T) {
	file := filepath.Join(folder(t), "keys")
	if err := os.WriteFile(file, []byte("# ours\nalpha\n\nbeta\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, nil, func(c *server.Config) { c.APIKeyFile = file })
	cc := dial(t, s.Addrs()[0])
	client := entropypb.NewEntropyServiceClient(cc)
	for key, want := range map[string]codes.Code{"alpha": codes.OK, "beta": codes.OK, "": codes.Unauthenticated, "alph": codes.Unauthenticated, "# ours": codes.Unauthenticated} {
		ctx := t.Context()
		if key != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "api-key", key)
		}
		if _, err := client.GetEntropy(ctx, &entropypb.EntropyRequest{BytesNeeded: 4}); status.Code(err) != want {
			t.Errorf("key %q: %v", key, err)
		}
		stream, err := client.StreamEntropy(ctx)
		if err == nil {
			_ = stream.Send(&entropypb.EntropyRequest{BytesNeeded: 4})
			_, err = stream.Recv()
		}
		if status.Code(err) != want {
			t.Errorf("key %q on a stream: %v", key, err)
		}
	}
	if _, err := grpc_health_v1.NewHealthClient(cc).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("health needs no key: %v", err)
	}
}

// TestStop: a request under way ends in peace, an idle stream does not hold the server up, the device is closed last.
func TestStop(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	src := &fixed{t: t, draw: func(_ context.Context, buf []byte) (entropy.Block, error) {
		if len(buf) == 7 {
			close(inside)
			<-release
		}
		return entropy.Block{Bytes: buf}, nil
	}}
	s := start(t, src, func(c *server.Config) { c.Grace = time.Minute })
	cc := dial(t, s.Addrs()[0])
	idle, err := entropypb.NewEntropyServiceClient(cc).StreamEntropy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := idle.Send(&entropypb.EntropyRequest{BytesNeeded: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := idle.Recv(); err != nil {
		t.Fatal(err)
	}
	busy := make(chan error, 1)
	go func() {
		_, err := get(t, cc, 7)
		busy <- err
	}()
	<-inside
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	for !server.Stopping(s.Server) {
		<-time.After(time.Millisecond)
	}
	if _, err := get(t, cc, 1); status.Code(err) != codes.Unavailable {
		t.Errorf("a request while it stops: %v", err)
	}
	close(release)
	if err := <-busy; err != nil {
		t.Errorf("the request under way: %v", err)
	}
	if _, err := idle.Recv(); err == nil {
		t.Error("an idle stream brings a reply")
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if !src.closed.Load() {
		t.Error("the device is not closed")
	}
	path := strings.TrimPrefix(s.Addrs()[0], "unix://")
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// TestGrace: a request that takes longer than the grace period is cut.
func TestGrace(t *testing.T) {
	inside := make(chan struct{})
	src := &fixed{t: t, draw: func(ctx context.Context, _ []byte) (entropy.Block, error) {
		close(inside)
		<-ctx.Done()
		return entropy.Block{}, ctx.Err()
	}}
	s := start(t, src, func(c *server.Config) { c.Grace = 20 * time.Millisecond })
	cc := dial(t, s.Addrs()[0])
	ended := make(chan error, 1)
	go func() {
		_, err := get(t, cc, 7)
		ended <- err
	}()
	<-inside
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("the request succeeds")
	}
}

func TestListens(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "localhost:0", "unix-abstract:qr-test-" + t.Name()} {
		cfg := server.DefaultConfig()
		cfg.Listen = []string{address}
		s, err := server.New(cfg, server.Deps{Source: local.NewSystem()})
		if err != nil {
			if strings.Contains(err.Error(), "cannot assign requested address") {
				continue // no IPv6 here
			}
			t.Errorf("%s: %v", address, err)
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		if _, err := get(t, dial(t, s.Addrs()[0]), 4); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, change := range map[string]func(*server.Config){
		"listen is empty":     func(c *server.Config) { c.Listen = nil },
		"beyond this machine": func(c *server.Config) { c.Listen = []string{"0.0.0.0:1"} },
		"anybody could take":  func(c *server.Config) { c.Listen = []string{":1"} },
		"socket_mode":         func(c *server.Config) { c.SocketMode = 0o7777 },
		"api_key_header":      func(c *server.Config) { c.APIKeyHeader = "API-Key" },
		"belong together":     func(c *server.Config) { c.TLSCert = "x" },
		"tls_client_ca needs": func(c *server.Config) { c.TLSClientCA = "x" },
		"max_bytes":           func(c *server.Config) { c.MaxBytes = 0 },
		"number_bytes":        func(c *server.Config) { c.NumberBytes = 1 << 30 },
		"grace":               func(c *server.Config) { c.Grace = -1 },
		"read api_key_file":   func(c *server.Config) { c.APIKeyFile = "/does/not/exist" },
		"relative path":       func(c *server.Config) { c.Listen = []string{"unix:s"} },
		"read certificate":    func(c *server.Config) { c.TLSCert, c.TLSKey = "/does/not", "/exist" },
		"is not known":        func(c *server.Config) { c.Faults = []server.Fault{{Kind: "odd"}} },
	} {
		cfg := server.DefaultConfig()
		cfg.Listen = []string{"unix-abstract:qr-test-" + t.Name()}
		change(&cfg)
		if _, err := server.New(cfg, server.Deps{Source: local.NewSystem()}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := server.New(server.DefaultConfig(), server.Deps{}); err == nil {
		t.Error("a server without a source is made")
	}
}

// TestNumbersSayWhenTheirBytesWereMade: a server that passes on the bytes of another must not make them look newer.
func TestNumbersSayWhenTheirBytesWereMade(t *testing.T) {
	made := time.Unix(1_600_000_000, 5)
	timeless := &fixed{t: t, draw: func(_ context.Context, buf []byte) (entropy.Block, error) {
		return entropy.Block{Bytes: buf, Source: "fixed"}, nil
	}}
	b, err := get(t, dial(t, start(t, timeless, nil).Addrs()[0]), 8)
	if at := time.Unix(0, b.GetGenerationTimestampNs()); err != nil || time.Since(at).Abs() > time.Minute {
		t.Errorf("a source that keeps no time: %v, %v", at, err)
	}
	src := &fixed{t: t, draw: func(_ context.Context, buf []byte) (entropy.Block, error) {
		return entropy.Block{Bytes: buf, Source: "fixed", Requested: time.Now(), Arrived: time.Now(), ServerTime: made}, nil
	}}
	cc := dial(t, start(t, src, nil).Addrs()[0])
	d, err := entropypb.NewPurityServiceClient(cc).GetDraw(t.Context(), &entropypb.DrawRequest{})
	if err != nil || d.GetGenerationTimestampNs() != uint64(made.UnixNano()) {
		t.Errorf("got %v, %v, want %d", d, err, made.UnixNano())
	}
}
