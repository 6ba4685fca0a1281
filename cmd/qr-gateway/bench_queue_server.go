package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	client "github.com/redis/go-redis/v9"

	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/memory"
	"qr-gateway/gateway/queue/redis"
)

// queueServer is where the queues of a measurement are: in this process, and on Redis if there is a url.
type queueServer struct {
	url  string
	name string       // before the names of all queues of this run
	stop func() error // ends a server of its own; nil without
}

// newQueueServer uses the server at url, or starts one in a folder of its own.
func newQueueServer(ctx context.Context, url string) (*queueServer, error) {
	s := &queueServer{url: url, name: "bench-" + strings.ToLower(rand.Text())}
	binary, err := exec.LookPath("redis-server")
	if url != "" || err != nil {
		return s, nil //nolint:nilerr // without a server the embedded queue is measured alone
	}
	dir, err := os.MkdirTemp("", "qr-bench-")
	if err != nil {
		return nil, fmt.Errorf("make folder for redis-server: %w", err)
	}
	socket := filepath.Join(dir, "s")
	cmd := exec.CommandContext(context.WithoutCancel(ctx), binary, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start redis-server: %w", err), os.RemoveAll(dir))
	}
	s.url = "unix://" + socket
	s.stop = func() error {
		_ = cmd.Process.Kill() // what it holds is not kept
		_ = cmd.Wait()         // it says that it was killed
		return os.RemoveAll(dir)
	}
	if err := listens(ctx, socket); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// listens waits until somebody listens on a socket.
func listens(ctx context.Context, socket string) error {
	for range 500 {
		var d net.Dialer
		if c, err := d.DialContext(ctx, "unix", socket); err == nil {
			return c.Close()
		}
		if err := rest(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("start redis-server: it does not listen after 5 s")
}

// rest is a pause.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close ends a server of its own, and takes the queues of this run off any other.
func (s *queueServer) close() error {
	switch {
	case s.stop != nil:
		return s.stop()
	case s.url == "":
		return nil
	}
	options, err := client.ParseURL(s.url)
	if err != nil {
		return fmt.Errorf("take the queues of this run off the server: %w", err)
	}
	db := client.NewClient(options)
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	for keys := db.Scan(ctx, 0, "{qr:"+s.name+"*", 1000).Iterator(); keys.Next(ctx); {
		err = errors.Join(err, db.Unlink(ctx, keys.Val()).Err())
	}
	return errors.Join(err, db.Close())
}

// Names of the queues in reports.
const (
	embeddedQueue = "embedded"
	redisQueue    = "redis"
)

// bed is a queue that runs.
type bed struct {
	name string
	line
}

// with opens a queue of each kind, with room for all that is to come, runs f and closes them.
func (s *queueServer) with(ctx context.Context, change func(*queue.Config), f func(ctx context.Context, beds []bed) error) (err error) {
	c := queue.DefaultConfig()
	c.Jobs, c.JobsPerKey, c.Tokens, c.TokensPerKey = 200_000, 200_000, 1<<40, 1<<40
	c.Bytes, c.BytesPerKey = 4<<30, 4<<30
	c.Wait, c.Lease, c.Stall, c.Age = 0, time.Minute, 0, 0
	if change != nil {
		change(&c)
	}
	beds, err := s.open(ctx, c)
	if err != nil {
		return err
	}
	ran := make(chan error)
	running, stop := context.WithCancel(ctx)
	for _, b := range beds {
		go func() { ran <- b.Run(running) }()
	}
	defer func() {
		stop()
		for range beds {
			err = errors.Join(err, <-ran)
		}
	}()
	return f(ctx, beds)
}

func (s *queueServer) open(ctx context.Context, c queue.Config) ([]bed, error) {
	own, err := memory.New(c)
	if err != nil {
		return nil, err
	}
	beds := []bed{{embeddedQueue, own}}
	if s.url == "" {
		return beds, nil
	}
	shared := redis.DefaultConfig()
	shared.URL, shared.Name, shared.Config = s.url, s.name+"-"+strings.ToLower(rand.Text())[:8], c
	shared.Timeout = 10 * time.Second
	there, err := redis.Open(ctx, shared, redis.Deps{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return append(beds, bed{redisQueue, there}), nil
}
