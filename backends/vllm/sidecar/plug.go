package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"qr-gateway/backends/vllm/wire"
)

const (
	greeting = 5 * time.Second // for a plugin to say who it is
	maxFDs   = 8               // that may come with a hello
)

// users are those whose plugins may connect.
func users(more []int) map[int]bool {
	all := map[int]bool{0: true, os.Getuid(): true}
	for _, uid := range more {
		all[uid] = true
	}
	return all
}

// listenPlugs binds the plugins' socket. Where other users may connect, its mode lets everybody try.
func listenPlugs(path string, others bool) (*net.UnixListener, error) {
	if others {
		return listenUnix(path, 0o666)
	}
	return listenUnix(path, 0o600)
}

// listenUnix binds a Unix socket with that mode, and replaces the file that a dead sidecar left.
func listenUnix(path string, mode fs.FileMode) (*net.UnixListener, error) {
	if err := vacate(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), l.Close())
	}
	return l, nil
}

// vacate removes the socket's file, unless it is something else or somebody listens.
func vacate(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("listen on %s: %w", path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("listen on %s: there is a file of another kind: remove it, or choose another path", path)
	}
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(context.Background(), "unix", path)
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("listen on %s: another process uses it: stop that one, or choose another path", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listen on %s: remove old socket: %w", path, err)
	}
	return nil
}

// accept takes plugins until ctx ends.
func (s *Server) accept(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = s.plugs.Close() })()
	for {
		conn, err := s.plugs.AcceptUnix()
		switch {
		case err == nil:
			s.work.Go(func() { s.serve(ctx, conn) })
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ECONNABORTED), errors.Is(err, syscall.ENOMEM):
			s.deps.Log.Error("take plugin", "error", err)
			pause(ctx, time.Second/10)
		default:
			return fmt.Errorf("take plugins: %w", err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// plug is a plugin's connection.
type plug struct {
	conn *net.UnixConn
	read *wire.Reader
	fds  []int // that came before it was greeted
	open bool  // it was greeted: files are not taken any more
}

// Read implements io.Reader for read.
func (p *plug) Read(b []byte) (int, error) {
	if p.open {
		return p.conn.Read(b)
	}
	var oob [256]byte
	n, m, _, _, err := p.conn.ReadMsgUnix(b, oob[:])
	if err == nil && n == 0 && m == 0 {
		return 0, io.EOF
	}
	p.fds = append(p.fds, rights(oob[:m])...)
	if len(p.fds) > maxFDs {
		return n, &wire.RefusedError{Code: wire.CodeHello, Message: fmt.Sprintf("%d files came with the hello; it takes one", len(p.fds))}
	}
	return n, err
}

// rights are the files of a message.
func rights(oob []byte) (fds []int) {
	all, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range all {
		if more, err := syscall.ParseUnixRights(&all[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	return fds
}

func (p *plug) next() (wire.Frame, error) { return p.read.Next(wire.MaxBody) }

func (p *plug) send(frame []byte) error {
	_, err := p.conn.Write(frame)
	return err
}

// drop closes the files that nobody took.
func (p *plug) drop() {
	for _, fd := range p.fds {
		_ = syscall.Close(fd)
	}
	p.fds = nil
}

// serve serves one plugin.
func (s *Server) serve(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	p := &plug{conn: conn}
	p.read = wire.NewReader(p)
	defer p.drop()
	if err := s.checkUser(conn); err != nil {
		s.end(ctx, p, nil, err)
		return
	}
	c, err := s.greet(p)
	if err == nil {
		err = s.run(ctx, c, p)
	}
	s.end(ctx, p, c, err)
}

// run runs the session of a plugin that was greeted. One that panics ends alone.
func (s *Server) run(ctx context.Context, c *session, l line) (err error) {
	s.join(c)
	defer s.leave(c)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	h := c.hello
	s.deps.Log.Info("plugin connected", "session", h.Session, "model", h.Model, "vllm", h.VLLM, "runner", h.Runner, "rows", h.Rows, "rank", h.TPRank, "dp_rank", h.DPRank)
	return c.run(ctx, l)
}

// end says why a connection is over: to the plugin where it is to blame, and to the log.
func (s *Server) end(ctx context.Context, l line, c *session, err error) {
	session := ""
	if c != nil {
		session = c.hello.Session
	}
	r, refused := errors.AsType[*wire.RefusedError](err)
	switch {
	case refused:
		s.counts.refusals.Add(1)
		s.deps.Log.Warn("plugin refused", "session", session, "code", r.Code, "reason", r.Message)
		if frame, err := wire.AppendJSON(nil, wire.KindRefuse, r); err == nil {
			_ = l.send(frame)
		}
	case err != nil && ctx.Err() == nil && !errors.Is(err, net.ErrClosed):
		s.deps.Log.Warn("plugin lost", "session", session, "error", err)
	case c != nil:
		s.deps.Log.Info("plugin left", "session", session)
	}
}

func (s *Server) checkUser(conn *net.UnixConn) error {
	uid, err := s.user(conn)
	if err == nil && s.users[uid] {
		return nil
	}
	r := &wire.RefusedError{Code: wire.CodePeer, Message: fmt.Sprintf("user %d may not use this sidecar", uid), Hint: "run vLLM as the sidecar's user, or name its user in uids"}
	if err != nil {
		r.Message = fmt.Sprintf("the plugin's user can't be found out: %v", err)
	}
	return r
}

// greet reads the hello and welcomes.
func (s *Server) greet(p *plug) (*session, error) {
	if err := p.conn.SetDeadline(time.Now().Add(greeting)); err != nil {
		return nil, err
	}
	hello, err := readHello(p.read.Next(wire.MaxHello))
	if err != nil {
		return nil, err
	}
	c := newSession(s, hello)
	if hello.Stride > 0 {
		if c.shared, err = p.memory(hello); err != nil {
			return nil, err
		}
		c.shape.Slots = c.shared.slots
	}
	p.drop()
	if err := s.welcome(p); err != nil {
		return c, errors.Join(err, c.shared.close())
	}
	p.open = true
	if err := p.conn.SetDeadline(time.Time{}); err != nil {
		return c, errors.Join(err, c.shared.close())
	}
	return c, nil
}

// readHello reads the frame that must be first.
func readHello(f wire.Frame, err error) (*wire.Hello, error) {
	if err != nil {
		return nil, err
	}
	if f.Kind != wire.KindHello {
		return nil, &wire.RefusedError{Code: wire.CodeHello, Message: fmt.Sprintf("the first frame is a %s; it must be a hello", f.Kind)}
	}
	return wire.ParseHello(f.Body)
}

func (s *Server) welcome(l line) error {
	w := wire.Welcome{Protocol: wire.Protocol, Schema: wire.Hash(), Sidecar: s.cfg.Version, Top: s.cfg.Top, DeadlineMS: int(s.cfg.Deadline.Milliseconds())}
	frame, err := wire.AppendJSON(nil, wire.KindWelcome, w)
	if err != nil {
		return err
	}
	return l.send(frame)
}

// memory maps the file that came with the hello.
func (p *plug) memory(h *wire.Hello) (*memory, error) {
	if len(p.fds) != 1 {
		return nil, &wire.RefusedError{Code: wire.CodeHello, Message: fmt.Sprintf("%d files came with the hello; a stride of %d takes one", len(p.fds), h.Stride)}
	}
	m, err := mapShared(p.fds[0], h.Stride, h.MaxRows)
	if err != nil {
		return nil, &wire.RefusedError{
			Code: wire.CodeHello, Message: fmt.Sprintf("the memory that came with the hello can't be used: %v", err),
			Hint: "pass a memfd of max_rows x stride bytes, sealed with F_SEAL_SHRINK",
		}
	}
	return m, nil
}
