package grpc

import (
	"errors"
	"sync"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// errClosed is what is found after Close.
var errClosed = errors.New("the source is closed")

// line is the connection to a server. It is made when first needed and replaced when it is suspected to be dead without saying so. What
// is under way on a replaced one may end there.
type line struct {
	dial func() (*rpc.ClientConn, error)

	mu      sync.Mutex // guards all below
	current *conn
	all     map[*conn]bool
	closed  bool
	users   sync.WaitGroup // of connections; grows only while open
}

// conn is one connection. Its counts are guarded by the line's mutex.
type conn struct {
	cc      *rpc.ClientConn
	users   int
	retired bool
}

func newLine(dial func() (*rpc.ClientConn, error)) *line {
	return &line{dial: dial, all: map[*conn]bool{}}
}

// take returns the connection, to be given back.
func (l *line) take() (*conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	if l.current == nil {
		cc, err := l.dial()
		if err != nil {
			return nil, err
		}
		l.current = &conn{cc: cc}
		l.all[l.current] = true
	}
	l.current.users++
	l.users.Add(1)
	return l.current, nil
}

// give ends a use.
func (l *line) give(c *conn) {
	l.mu.Lock()
	c.users--
	l.endIfUnused(c)
	l.mu.Unlock()
	l.users.Done()
}

// renew lets the next caller make a new connection.
func (l *line) renew() { l.renewIf(func(*rpc.ClientConn) bool { return true }) }

// renewFailed does that for a connection that could not be made, so that the next attempt is made at once, whatever pause there is between
// attempts. (ClientConn.ResetConnectBackoff is for that, but walks a map that others write: it may end the process.)
func (l *line) renewFailed() {
	l.renewIf(func(cc *rpc.ClientConn) bool { return cc.GetState() == connectivity.TransientFailure })
}

func (l *line) renewIf(bad func(*rpc.ClientConn) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.current; c != nil && bad(c.cc) {
		l.current, c.retired = nil, true
		l.endIfUnused(c)
	}
}

// endIfUnused closes a retired connection that nobody uses. mu is held.
func (l *line) endIfUnused(c *conn) {
	if c.retired && c.users == 0 && l.all[c] {
		delete(l.all, c)
		_ = c.cc.Close() // it says only that it is closed already
	}
}

// close ends all connections and waits for those who use them.
func (l *line) close() {
	l.mu.Lock()
	l.closed = true
	for c := range l.all {
		_ = c.cc.Close()
	}
	l.mu.Unlock()
	l.users.Wait()
}

func (l *line) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
