package hub

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropytest"
	"qr-gateway/entropy/local"
)

func TestConformance(t *testing.T) {
	entropytest.RunWith(t, entropytest.Options{OtherProbe: true}, func(t *testing.T) entropy.Source {
		src, _ := open(t, local.NewSystem())
		return src
	})
}

func wholeBlock(buf []byte) entropy.Block {
	return entropy.Block{
		Bytes: buf, Source: "second", Device: "dev", Requested: time.Unix(0, 1700000000000000001), Arrived: time.Unix(0, 1700000000000000002),
		ServerTime: time.Unix(0, 1700000000000000003), Sequence: 7, Echoed: true, Class: entropy.ClassBuffer, Shots: 3, Fallback: true,
		Flags: entropy.FlagTooFast | entropy.FlagDrift, Pipelined: true, Nonce: 1 << 62, Salt: []byte{1, 2}, Discarded: 2,
	}
}

func TestBlockTravelsWhole(t *testing.T) {
	src, _ := open(t, &scripted{draw: func(_ context.Context, buf []byte) (entropy.Block, error) {
		copy(buf, "abc")
		return wholeBlock(buf), nil
	}})
	buf := make([]byte, 3)
	got, err := src.Draw(t.Context(), buf)
	if diff := cmp.Diff(wholeBlock([]byte("abc")), got); err != nil || diff != "" {
		t.Errorf("%v (-lent +drawn)\n%s", err, diff)
	}
}

func TestNumberTravelsWhole(t *testing.T) {
	want := entropy.Number{
		Block: wholeBlock(nil), U: 0.25, Z: -0.67, SourceID: "a", Bytes: 4096, Integrator: "bit_z", Purity: "high", CoherenceZ: 1.5,
		CoherenceR: -0.1, Coherent: true,
	}
	src, _ := open(t, &scripted{number: func(_ context.Context, req entropy.NumberRequest) (entropy.Number, error) {
		n := want
		n.SourceID, n.Bytes = req.SourceID, req.BlockBytes
		return n, nil
	}})
	got, err := src.Number(t.Context(), entropy.NumberRequest{SourceID: "a", BlockBytes: 4096})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-lent +drawn)\n%s", err, diff)
	}
}

func TestErrorsTravelWhole(t *testing.T) {
	for _, kind := range []entropy.Kind{
		entropy.KindConfig, entropy.KindRefused, entropy.KindQuota, entropy.KindTimeout, entropy.KindTransport, entropy.KindProtocol,
		entropy.KindHealth, entropy.KindOpen, entropy.KindClosed,
	} {
		src, _ := open(t, &scripted{draw: func(context.Context, []byte) (entropy.Block, error) {
			return entropy.Block{}, &entropy.Error{Kind: kind, Source: "first", Message: "it said no", Hint: "ask again", Err: errors.New("cause")}
		}})
		_, err := src.Draw(t.Context(), make([]byte, 4))
		e, ok := errors.AsType[*entropy.Error](err)
		if !ok {
			t.Fatalf("%s: got %v", kind, err)
		}
		want := &entropy.Error{Kind: kind, Source: "first", Message: "it said no: cause", Hint: "ask again"}
		if diff := cmp.Diff(want, e); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}

func TestOtherErrorsAreTransport(t *testing.T) {
	src, _ := open(t, &scripted{draw: func(context.Context, []byte) (entropy.Block, error) {
		return entropy.Block{}, errors.New("no idea")
	}})
	if _, err := src.Draw(t.Context(), make([]byte, 4)); entropy.KindOf(err) != entropy.KindTransport || !strings.Contains(err.Error(), "no idea") {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	src, r := open(t, struct{ entropy.Source }{local.NewSystem()})
	_, err := r.client.Source(t.Context(), "other")
	if entropy.KindOf(err) != entropy.KindConfig || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("unknown source: %v", err)
	}
	if _, err = src.Number(t.Context(), entropy.NumberRequest{}); entropy.KindOf(err) != entropy.KindRefused {
		t.Errorf("number of a source that makes none: %v", err)
	}
	if src.Begin(16, 1) != nil {
		t.Error("a source that can't be asked ahead gave a ticket")
	}
	if _, err = src.Draw(t.Context(), make([]byte, maxDraw+1)); entropy.KindOf(err) != entropy.KindRefused {
		t.Errorf("too many bytes: %v", err)
	}
	if b, err := src.Draw(t.Context(), make([]byte, maxDraw)); err != nil || len(b.Bytes) != maxDraw {
		t.Errorf("as many as may be: %v", err)
	}
}

func TestShortBlocksAreRefused(t *testing.T) {
	src, _ := open(t, &scripted{draw: func(_ context.Context, buf []byte) (entropy.Block, error) {
		return entropy.Block{Bytes: buf[:1], Source: "x"}, nil
	}})
	if _, err := src.Draw(t.Context(), make([]byte, 4)); entropy.KindOf(err) != entropy.KindProtocol {
		t.Errorf("got %v", err)
	}
}

func TestPanicFailsOneDraw(t *testing.T) {
	fail := true
	src, _ := open(t, &scripted{draw: func(ctx context.Context, buf []byte) (entropy.Block, error) {
		if fail {
			fail = false
			panic("a defect")
		}
		return local.NewSystem().Draw(ctx, buf)
	}})
	if _, err := src.Draw(t.Context(), make([]byte, 4)); entropy.KindOf(err) != entropy.KindRefused {
		t.Errorf("got %v", err)
	}
	if _, err := src.Draw(t.Context(), make([]byte, 4)); err != nil {
		t.Errorf("after the panic: %v", err)
	}
}

// TestRepliesOutOfOrder: the reply of each draw goes to who asked, whatever order they come in.
func TestRepliesOutOfOrder(t *testing.T) {
	const many = 50
	var arrived sync.WaitGroup
	arrived.Add(many)
	src, _ := open(t, &scripted{draw: func(_ context.Context, buf []byte) (entropy.Block, error) {
		arrived.Done()
		arrived.Wait() // none is answered before all have come
		for i := range buf {
			buf[i] = byte(len(buf))
		}
		return entropy.Block{Bytes: buf, Source: "x"}, nil
	}})
	var asking sync.WaitGroup
	for n := 1; n <= many; n++ {
		asking.Go(func() {
			b, err := src.Draw(t.Context(), make([]byte, n))
			if err != nil || !bytes.Equal(b.Bytes, bytes.Repeat([]byte{byte(n)}, n)) {
				t.Errorf("asked for %d: %v, %v", n, b.Bytes, err)
			}
		})
	}
	asking.Wait()
}

// TestCancelReachesTheSource: and the reply that comes too late is not used for the next draw.
func TestCancelReachesTheSource(t *testing.T) {
	w := newWaiting()
	src, _ := open(t, w)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	buf := make([]byte, 8)
	go func() {
		_, err := src.Draw(ctx, buf)
		done <- err
	}()
	<-w.begun
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("draw: %v", err)
	}
	<-w.ended
	go func() { <-w.begun; w.let <- struct{}{} }()
	if b, err := src.Draw(t.Context(), make([]byte, 5)); err != nil || len(b.Bytes) != 5 {
		t.Errorf("next draw: %v", err)
	}
	if !bytes.Equal(buf, make([]byte, 8)) {
		t.Errorf("a draw that was given up wrote %x", buf)
	}
}

func TestServerEndsAndComesBack(t *testing.T) {
	w := newWaiting()
	src, r := open(t, w)
	done := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := src.Draw(t.Context(), make([]byte, 8))
			done <- err
		}()
		<-w.begun
	}
	go func() {
		for range 3 {
			<-w.ended
		}
	}()
	r.stop()
	for range 3 {
		if err := <-done; entropy.KindOf(err) != entropy.KindTransport {
			t.Errorf("the server ended: %v", err)
		}
	}
	serve(t, r.dir, &shelf{sources: map[string]entropy.Source{"lent": local.NewSystem()}})
	if b, err := src.Draw(t.Context(), make([]byte, 8)); err != nil || len(b.Bytes) != 8 {
		t.Errorf("after the server came back: %v", err)
	}
}

func TestNoServer(t *testing.T) {
	src, r := open(t, local.NewSystem())
	r.stop()
	r.client.cfg.Wait = 0
	var err error
	for err == nil { // until the client has noticed
		_, err = src.Draw(t.Context(), make([]byte, 8))
	}
	if entropy.KindOf(err) != entropy.KindTransport {
		t.Errorf("got %v", err)
	}
}

func TestClosed(t *testing.T) {
	dir := socketDir(t)
	s, _ := serve(t, dir, &shelf{sources: map[string]entropy.Source{"lent": local.NewSystem()}})
	c, stop := dial(t, s.Path())
	src, err := c.Source(t.Context(), "lent")
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := src.Draw(t.Context(), make([]byte, 8)); entropy.KindOf(err) != entropy.KindClosed {
		t.Errorf("got %v", err)
	}
	if _, err := c.Describe(t.Context(), "other", Blocks{}); err == nil {
		t.Error("a closed client described a source")
	}
}

// early is a ticket whose bytes are its nonce.
type early struct{ nonce uint64 }

func (e early) Redeem(_ context.Context, buf []byte) (entropy.Block, error) {
	binary.BigEndian.PutUint64(buf, e.nonce)
	return entropy.Block{Bytes: buf, Source: "x", Pipelined: true, Nonce: e.nonce}, nil
}

func (e early) Drop() {}

func TestAskedAhead(t *testing.T) {
	busy := false
	src, _ := open(t, &scripted{begin: func(_ int, nonce uint64) entropy.Ticket {
		if busy {
			return nil
		}
		return early{nonce}
	}})
	first, second := src.Begin(8, 11), src.Begin(8, 22)
	first.Drop()
	b, err := second.Redeem(t.Context(), make([]byte, 8))
	if err != nil || binary.BigEndian.Uint64(b.Bytes) != 22 || !b.Pipelined || b.Nonce != 22 {
		t.Errorf("got %+v, %v", b, err)
	}
	if _, err := src.Begin(8, 33).Redeem(t.Context(), make([]byte, 9)); entropy.KindOf(err) != entropy.KindProtocol {
		t.Errorf("redeemed for another length: %v", err)
	}
	busy = true
	if _, err := src.Begin(8, 44).Redeem(t.Context(), make([]byte, 8)); entropy.KindOf(err) != entropy.KindRefused {
		t.Errorf("the source can't now: %v", err)
	}
}

func TestDescribeAndCalibrateOnce(t *testing.T) {
	dir := socketDir(t)
	p := &shelf{sources: map[string]entropy.Source{"lent": &scripted{}}}
	s, _ := serve(t, dir, p)
	c, _ := dial(t, s.Path())
	ask := Blocks{Count: 100, Bytes: 2048}
	want, err := p.Describe(t.Context(), "lent", ask)
	if err != nil {
		t.Fatal(err)
	}
	want.Ahead = true
	for range 3 {
		got, err := c.Describe(t.Context(), "lent", ask)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-served +described)\n%s", err, diff)
		}
	}
	p.mu.Lock()
	asked := len(p.asked)
	p.mu.Unlock()
	if asked != 2 {
		t.Errorf("the provider was asked %d times, want once by the client", asked-1)
	}
	src, err := c.Source(t.Context(), "lent")
	if err != nil {
		t.Fatal(err)
	}
	if can, err := src.Probe(t.Context()); err != nil || can.Device != "lent" {
		t.Errorf("probe: %+v, %v", can, err)
	}
}

func TestDescribeFails(t *testing.T) {
	dir := socketDir(t)
	s, _ := serve(t, dir, &shelf{
		sources: map[string]entropy.Source{"lent": local.NewSystem()},
		fails:   &entropy.Error{Kind: entropy.KindHealth, Source: "lent", Message: "no spread", Hint: "look at the device"},
	})
	c, _ := dial(t, s.Path())
	_, err := c.Describe(t.Context(), "lent", Blocks{Count: 2, Bytes: 2})
	if e, ok := errors.AsType[*entropy.Error](err); !ok || e.Kind != entropy.KindHealth || e.Hint == "" {
		t.Errorf("got %#v", err)
	}
}

func TestOneEnginesDrawsAreBounded(t *testing.T) {
	w := newWaiting()
	src, r := open(t, w)
	var asked sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range maxFlight {
		asked.Go(func() { _, _ = src.Draw(ctx, make([]byte, 1)) })
		<-w.begun
	}
	if _, err := src.Draw(t.Context(), make([]byte, 1)); entropy.KindOf(err) != entropy.KindRefused {
		t.Errorf("one more: %v", err)
	}
	cancel()
	for range maxFlight {
		<-w.ended
	}
	asked.Wait()
	r.stop()
}

func TestSocketIsPrivate(t *testing.T) {
	dir := socketDir(t)
	s, stop := serve(t, dir, &shelf{})
	info, err := os.Stat(s.Path())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info.Mode(), err)
	}
	stop()
	if _, err := os.Stat(s.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{open, filepath.Join(dir, "none"), s.Path()} {
		if _, err := New(t.Context(), Config{Dir: bad}, Deps{}); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	unused, err := New(t.Context(), Config{Dir: dir}, Deps{})
	if err != nil || unused.Close() != nil {
		t.Errorf("a server that is never run: %v", err)
	}
}
