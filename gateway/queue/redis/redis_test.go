package redis_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/queuetest"
	"qr-gateway/gateway/queue/redis"
)

func TestMain(m *testing.M) {
	redis.LogTo(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// rig is a server and the queues that tests open on it.
type rig struct {
	url  string
	many atomic.Int64 // queues so far, for their names
}

func (r *rig) config(l queuetest.Limits) redis.Config {
	c := redis.DefaultConfig()
	c.URL, c.Config, c.Timeout = r.url, l.Config, 10*time.Second
	c.Name = fmt.Sprint("t", r.many.Add(1))
	return c
}

func quiet() redis.Deps { return redis.Deps{Log: slog.New(slog.DiscardHandler)} }

// start runs a queue until the test ends.
func start(t *testing.T, c redis.Config) *redis.Queue {
	t.Helper()
	q, err := redis.OpenSkewed(t.Context(), c, quiet())
	if err != nil {
		t.Fatal(err)
	}
	run(t, q)
	return q
}

func run(t *testing.T, q *redis.Queue) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := q.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { stop(); parts.Wait() })
	settle(t, q)
}

func settle(t *testing.T, q *redis.Queue) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	for ctx.Err() == nil { // until this process listens
		short, cut := context.WithTimeout(ctx, 20*time.Millisecond)
		err := q.Barrier(short)
		cut()
		if err == nil {
			return
		}
	}
	t.Error("what is published does not arrive")
}

// advance moves the clock in steps that are shorter than what the sweeper takes for a pause.
func advance(t *testing.T, q *redis.Queue, d time.Duration) {
	t.Helper()
	for d > 0 {
		step := min(d, time.Second)
		if err := q.Skew(t.Context(), step.Microseconds()); err != nil {
			t.Fatal(err)
		}
		if err := q.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		d -= step
	}
	settle(t, q)
}

// conformance runs the suite on a server.
func conformance(t *testing.T, url string, small bool, every int) {
	r := &rig{url: url}
	var t0 *testing.T
	var q *redis.Queue
	queuetest.Run(t, queuetest.Harness{
		Test: func(t *testing.T, f func(t *testing.T)) { t0 = t; f(t) },
		Open: func(t *testing.T, l queuetest.Limits) queue.Queue {
			q = start(t, r.config(l))
			return q
		},
		Advance: func(d time.Duration) { advance(t0, q, d) },
		Settle:  func() { settle(t0, q) },
		Small:   small,
		Every:   every,
	})
}

func TestConformanceMini(t *testing.T) {
	t.Parallel()
	s := miniredis.RunT(t)
	conformance(t, "redis://"+s.Addr()+"/0", true, 0)
}

func TestConformanceServer(t *testing.T) {
	conformance(t, serve(t).url(), raceEnabled, 0)
}

// server is a real redis-server of a test.
type server struct {
	binary string
	args   []string
	cmd    *exec.Cmd
	socket string
	port   int
}

// serve starts a server on a socket and a free port; it ends with the test.
func serve(t *testing.T, options ...string) *server {
	t.Helper()
	binary := os.Getenv("QR_TEST_REDIS")
	if binary == "" {
		var err error
		if binary, err = exec.LookPath("redis-server"); err != nil {
			t.Skip("there is no redis-server")
		}
	}
	dir := t.TempDir()
	s := &server{binary: binary, socket: filepath.Join(dir, "s"), port: freePort(t)}
	s.args = append([]string{
		"--port", fmt.Sprint(s.port), "--bind", "127.0.0.1", "--unixsocket", s.socket, "--dir", dir, "--save", "", "--appendonly", "no", "--loglevel", "warning",
	}, options...)
	s.again(t)
	t.Cleanup(func() { s.kill(t) })
	return s
}

// again starts the server, empty.
func (s *server) again(t *testing.T) {
	t.Helper()
	s.cmd = exec.Command(s.binary, s.args...)
	s.cmd.Stdout, s.cmd.Stderr = io.Discard, os.Stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 500 {
		c, err := net.Dial("unix", s.socket)
		if err == nil {
			_ = c.Close()
			return
		}
		<-time.NewTimer(10 * time.Millisecond).C
	}
	t.Fatal("redis-server does not come up")
}

func (s *server) kill(t *testing.T) {
	t.Helper()
	if s.cmd.ProcessState != nil {
		return
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = s.cmd.Wait() // it says that it was killed
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}
