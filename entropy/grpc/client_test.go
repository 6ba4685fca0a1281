package grpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc"
	"qr-gateway/entropy/grpc/breaker"
)

func wantKind(t *testing.T, err error, kind entropy.Kind, text string) {
	t.Helper()
	if entropy.KindOf(err) != kind || err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v (kind %q), want kind %q and %q in it", err, entropy.KindOf(err), kind, text)
	}
}

func quick(c *grpc.Config) {
	c.Breaker.Floor, c.Breaker.Timeout, c.Retries = 10*time.Millisecond, 50*time.Millisecond, 0
}

// TestWrongAnswers: what breaks the contract is told, whatever the mode.
func TestWrongAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(e exchange, n int, seq int64)
		text   string
	}{
		"short":     {func(e exchange, n int, seq int64) { e.reply(n-1, 7, seq) }, "short"},
		"long":      {func(e exchange, n int, seq int64) { e.reply(n+1, 7, seq) }, "long"},
		"empty":     {func(e exchange, _ int, seq int64) { e.reply(0, 7, seq) }, "has no bytes"},
		"nothing":   {func(e exchange, _ int, _ int64) { e.send(nil) }, ""},
		"far more":  {func(e exchange, _ int, seq int64) { e.reply(1<<20, 7, seq) }, "longer than what was asked"},
		"no echo":   {func(e exchange, n int, _ int64) { e.reply(n, 7, 0) }, ""},
		"other":     {func(e exchange, n int, seq int64) { e.reply(n, 7, seq+1000) }, fmt.Sprint(1001)},
		"malformed": {func(e exchange, _ int, _ int64) { e.send([]byte{0x0a, 0x05, 1}) }, "malformed"},
	} {
		for _, mode := range modes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				address := scripted(t, func(e exchange) error {
					for {
						n, seq, more := e.next()
						if !more {
							return nil
						}
						c.answer(e, n, seq)
					}
				})
				s := open(t, address, inMode(mode))
				buf := bytes.Repeat([]byte{0xa5}, 64)
				_, err := s.Draw(t.Context(), buf)
				wantKind(t, err, entropy.KindProtocol, c.text)
				if !bytes.Equal(buf, bytes.Repeat([]byte{0xa5}, 64)) {
					t.Error("the buffer was written")
				}
			})
		}
	}
}

// TestStatuses: what the server says is told apart.
func TestStatuses(t *testing.T) {
	var code atomic.Uint32
	address := scripted(t, func(e exchange) error {
		e.next()
		return status.Error(codes.Code(code.Load()), "so it is")
	})
	for _, mode := range modes {
		s := open(t, address, func(c *grpc.Config) { c.Mode, c.QuotaHold, c.Retries = mode, 0, 0 })
		for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
			want := entropy.KindTransport
			switch c {
			case codes.DeadlineExceeded:
				want = entropy.KindTimeout
			case codes.ResourceExhausted:
				want = entropy.KindQuota
			case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition, codes.OutOfRange,
				codes.Unimplemented, codes.Unauthenticated:
				want = entropy.KindRefused
			default:
			}
			code.Store(uint32(c))
			s.Force(breaker.ForceClosed)
			_, err := s.Draw(t.Context(), make([]byte, 8))
			if want == entropy.KindTimeout {
				wantKind(t, err, want, "in time")
			} else {
				wantKind(t, err, want, "so it is")
			}
		}
	}
}

// TestLateAnswer: an answer that comes after its time is never used, and the stream it came on is left.
func TestLateAnswer(t *testing.T) {
	var streams atomic.Int32
	address := scripted(t, func(e exchange) error {
		first := streams.Add(1) == 1
		for {
			n, seq, more := e.next()
			if !more {
				return nil
			}
			if first {
				<-e.Context().Done() // the client has left; then the late answer
				e.reply(n, 1, seq)
				return nil
			}
			e.reply(n, 2, seq)
		}
	})
	s := open(t, address, quick)
	_, err := s.Draw(t.Context(), make([]byte, 64))
	wantKind(t, err, entropy.KindTimeout, "in time")
	b, err := s.Draw(t.Context(), make([]byte, 64))
	if err != nil || b.Bytes[0] != 2 || streams.Load() != 2 {
		t.Errorf("the draw after: %v, %v, on stream %d", b.Bytes[:1], err, streams.Load())
	}
}

// TestCallerLeaves: the answer to one who left is dropped, the stream goes on, and the breaker counts nothing.
func TestCallerLeaves(t *testing.T) {
	var streams atomic.Int32
	asked, release := make(chan struct{}, 1), make(chan struct{})
	address := scripted(t, func(e exchange) error {
		streams.Add(1)
		for first := true; ; first = false {
			n, seq, more := e.next()
			if !more {
				return nil
			}
			if first {
				asked <- struct{}{}
				<-release
			}
			e.reply(n, byte(seq), seq)
		}
	})
	s := open(t, address, nil)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	buf := make([]byte, 64)
	go func() {
		_, err := s.Draw(ctx, buf)
		left <- err
	}()
	<-asked
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller who left: %v", err)
	}
	close(release)
	b, err := s.Draw(t.Context(), make([]byte, 64))
	if err != nil || b.Bytes[0] != 2 || b.Sequence != 2 {
		t.Errorf("the next draw: %v, %v", b, err)
	}
	if buf[0] != 0 || streams.Load() != 1 || s.Status().Failures != 0 {
		t.Errorf("buffer %d, %d streams, status %+v", buf[0], streams.Load(), s.Status())
	}
}

// TestOrderOfAnswers: answers are matched by number, not by order.
func TestOrderOfAnswers(t *testing.T) {
	address := scripted(t, func(e exchange) error {
		for {
			n, one, _ := e.next()
			_, two, more := e.next()
			if !more {
				return nil
			}
			e.reply(n, byte(two), two)
			e.reply(n, byte(one), one)
		}
	})
	s := open(t, address, nil)
	results := make(chan error, 2)
	for range 2 {
		go func() {
			b, err := s.Draw(t.Context(), make([]byte, 64))
			if err == nil && b.Bytes[0] != byte(b.Sequence) {
				err = fmt.Errorf("request %d got the bytes of %d", b.Sequence, b.Bytes[0])
			}
			results <- err
		}()
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// TestNoEcho: with a server that sends no number back, one request at a time is under way, and one that is given up ends the stream.
func TestNoEcho(t *testing.T) {
	var streams, early atomic.Int32
	address := scripted(t, func(e exchange) error {
		stream := streams.Add(1)
		requests := make(chan int, 100)
		go func() {
			defer close(requests)
			for n, _, more := e.next(); more; n, _, more = e.next() {
				requests <- n
			}
		}()
		for n := range requests {
			if stream == 1 {
				<-e.Context().Done()
			}
			<-time.After(time.Millisecond) // for one that does not wait for its turn
			early.Add(int32(len(requests)))
			e.reply(n, byte(stream), 0)
		}
		return nil
	})
	s := open(t, address, func(c *grpc.Config) { quick(c); c.Echo = grpc.EchoNone })
	_, err := s.Draw(t.Context(), make([]byte, 8))
	wantKind(t, err, entropy.KindTimeout, "in time")
	results := make(chan error, 8)
	for range cap(results) {
		go func() {
			b, err := s.Draw(t.Context(), make([]byte, 8))
			if err == nil && (b.Bytes[0] != 2 || b.Echoed) {
				err = fmt.Errorf("got %v", b)
			}
			results <- err
		}()
	}
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if early.Load() != 0 {
		t.Errorf("%d requests came before the answer to the one before", early.Load())
	}
}

// TestRetries: only what was lost with its connection is asked again, and no more often than allowed.
func TestRetries(t *testing.T) {
	var asked atomic.Int32
	var code atomic.Uint32
	address := scripted(t, func(e exchange) error {
		n, seq, _ := e.next()
		if asked.Add(1)%3 != 0 {
			return status.Error(codes.Code(code.Load()), "no")
		}
		e.reply(n, 1, seq)
		return nil
	})
	w := newWatcher()
	s := openWith(t, address, grpc.Deps{Observer: w}, func(c *grpc.Config) { c.Mode = grpc.ModeUnary })
	code.Store(uint32(codes.Unavailable))
	if _, err := s.Draw(t.Context(), make([]byte, 8)); err != nil || asked.Load() != 3 {
		t.Errorf("a lost connection: %v after %d requests", err, asked.Load())
	}
	code.Store(uint32(codes.Internal))
	if _, err := s.Draw(t.Context(), make([]byte, 8)); err == nil || asked.Load() != 4 {
		t.Errorf("a failure of the server: %v after %d requests", err, asked.Load())
	}
	if w.reports[""] != 1 || w.reports[entropy.KindTransport] != 1 {
		t.Errorf("reported: %v", w.reports)
	}
}

// TestQuotaHold: a used-up quota keeps from asking, and is no outage.
func TestQuotaHold(t *testing.T) {
	var asked atomic.Int32
	address := scripted(t, func(exchange) error {
		asked.Add(1)
		return status.Error(codes.ResourceExhausted, "200 a minute")
	})
	var now atomic.Int64
	now.Store(time.Now().UnixNano())
	s := openWith(t, address, grpc.Deps{Now: func() time.Time { return time.Unix(0, now.Load()) }}, func(c *grpc.Config) { c.QuotaHold = time.Minute })
	for i := range 20 {
		_, err := s.Draw(t.Context(), make([]byte, 8))
		wantKind(t, err, entropy.KindQuota, "")
		if i == 9 {
			now.Add(int64(time.Minute))
		}
	}
	if asked.Load() != 2 || s.Status().State != breaker.Closed {
		t.Errorf("asked %d times, want 2; breaker %+v", asked.Load(), s.Status())
	}
}

// TestKey: the key goes with every call, under the name that is configured.
func TestKey(t *testing.T) {
	address := scripted(t, func(e exchange) error {
		n, seq, _ := e.next()
		if got := e.metadata("x-key"); len(got) != 1 || got[0] != "s3cret" {
			return status.Errorf(codes.Unauthenticated, "key %v", got)
		}
		e.reply(n, 1, seq)
		return nil
	})
	for _, mode := range modes {
		s := open(t, address, func(c *grpc.Config) { c.Mode, c.APIKey, c.APIKeyHeader = mode, "s3cret", "x-key" })
		if _, err := s.Draw(t.Context(), make([]byte, 8)); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
	}
	c := grpc.DefaultConfig()
	c.APIKey = "s3cret"
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, c); strings.Contains(text, "s3cret") {
			t.Errorf("%s shows the key", verb)
		}
	}
}

// TestDeadline: a unary request carries the time that is left.
func TestDeadline(t *testing.T) {
	left := make(chan time.Duration, 1)
	address := scripted(t, func(e exchange) error {
		n, seq, _ := e.next()
		d, _ := e.Context().Deadline()
		left <- time.Until(d)
		e.reply(n, 1, seq)
		return nil
	})
	s := open(t, address, func(c *grpc.Config) { c.Mode, c.Breaker.Timeout = grpc.ModeUnary, 2*time.Second })
	if _, err := s.Draw(t.Context(), make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if got := <-left; got <= 0 || got > 2*time.Second {
		t.Errorf("the server sees %v", got)
	}
}

// TestOtherServers: methods, fields and payloads as declared.
func TestOtherServers(t *testing.T) {
	address := scripted(t, func(e exchange) error {
		n, _, _ := e.next()
		if e.method == "/qci.Uqrng/GetBits" { // asked in bits, under field 1; answers in field 5
			e.send(protowire.AppendString(protowire.AppendTag(nil, 5, protowire.BytesType), strings.Repeat("01", n/2)))
			return nil
		}
		msg := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), make([]byte, n))
		msg = protowire.AppendVarint(protowire.AppendTag(msg, 2, protowire.VarintType), 1767225600123456)
		e.send(protowire.AppendString(protowire.AppendTag(msg, 3, protowire.BytesType), "dev"))
		return nil
	})
	s := open(t, address, func(c *grpc.Config) { c.Method, c.Mode = "/qrng.QuantumRNG/GetRandomBytes", grpc.ModeUnary })
	b, err := s.Draw(t.Context(), make([]byte, 100))
	if err != nil || b.Echoed || b.Device != "dev" || b.ServerTime.UnixMicro() != 1767225600123456 {
		t.Errorf("qrng: %+v, %v", b, err)
	}
	s = open(t, address, func(c *grpc.Config) {
		c.Schema, c.Mode, c.Method, c.Payload = "qrng", grpc.ModeUnary, "/qci.Uqrng/GetBits", "bits"
		c.Fields.Data, c.Fields.CountUnit, c.Fields.Time, c.Fields.Device = 5, "bits", -1, -1
	})
	if b, err = s.Draw(t.Context(), make([]byte, 3)); err != nil || !bytes.Equal(b.Bytes, []byte{0x55, 0x55, 0x55}) {
		t.Errorf("bits: %x, %v", b.Bytes, err)
	}
	s = open(t, address, func(c *grpc.Config) { c.Mode = grpc.ModeUnary }) // the time stamp is taken for an echo
	_, err = s.Draw(t.Context(), make([]byte, 3))
	wantKind(t, err, entropy.KindProtocol, "1767225600123456")
}

// TestProbe asks nothing of the source.
func TestProbe(t *testing.T) {
	var asked atomic.Int32
	address := scripted(t, func(exchange) error { asked.Add(1); return nil })
	caps, err := open(t, address, nil).Probe(t.Context())
	if err != nil || caps.Details["health"] != "not offered" || asked.Load() != 0 {
		t.Errorf("%+v, %v; asked %d times", caps, err, asked.Load())
	}
	caps, err = open(t, serve(t, system(t), nil), nil).Probe(t.Context())
	if err != nil || caps.Details["health"] != "SERVING" || !caps.Number {
		t.Errorf("%+v, %v", caps, err)
	}
	began := time.Now()
	_, err = open(t, "unix:///tmp/qr-nobody", nil).Probe(t.Context())
	wantKind(t, err, entropy.KindTransport, "nothing answers")
	if took := time.Since(began); took > time.Second {
		t.Errorf("that nobody is there took %v to see", took)
	}
}
