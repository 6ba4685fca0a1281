package grpc_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc"
	"qr-gateway/entropy/grpc/breaker"
)

// drillFaults is everything a server can do wrong, each about once in 250 replies.
var drillFaults = []string{
	"delay:60ms@0.004", "jitter:40ms@0.004", "short:1@0.004", "long:1@0.004", "empty@0.004", "stale@0.004", "duplicate@0.004", "wrong-echo@0.004",
	"silent@0.004", "code:UNAVAILABLE@0.004", "code:INTERNAL@0.004", "code:RESOURCE_EXHAUSTED@0.002", "code:INVALID_ARGUMENT@0.002", "close@0.004",
}

// watcher collects what the observer hears.
type watcher struct {
	mu      sync.Mutex // guards all below
	events  []breaker.Event
	reports map[entropy.Kind]int
	opened  chan struct{} // has room for one
}

func newWatcher() *watcher {
	return &watcher{reports: map[entropy.Kind]int{}, opened: make(chan struct{}, 1)}
}

func (w *watcher) Drawn(_ string, r grpc.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports[r.Kind]++
}

func (w *watcher) Changed(_ string, e breaker.Event) {
	w.mu.Lock()
	w.events = append(w.events, e)
	w.mu.Unlock()
	if e.To == breaker.Open {
		select {
		case w.opened <- struct{}{}:
		default:
		}
	}
}

// TestDrill draws from a server that does everything wrong, is killed and frozen. No block that is handed out is stale, short or another's;
// the breaker opens and closes as specified; nothing is left running. With QR_VERIFY=1 it draws 100,000 blocks.
func TestDrill(t *testing.T) {
	draws := 3000
	if os.Getenv("QR_VERIFY") == "1" {
		draws = 100_000
	}
	for mode, n := range map[string]int{grpc.ModeBidi: draws * 8 / 10, grpc.ModeUnary: draws / 10, grpc.ModeServer: draws / 10} {
		t.Run(mode, func(t *testing.T) { drill(t, mode, n) })
	}
}

func drill(t *testing.T, mode string, draws int) {
	leaks := goleak.IgnoreCurrent()
	d := &driller{t: t, watch: newWatcher(), address: socket(t), left: draws, seen: map[string]bool{}, kinds: map[entropy.Kind]int{}}
	d.server = spawn(t, d.address, drillFaults...)
	d.source = openWith(t, d.address, grpc.Deps{Observer: d.watch}, func(c *grpc.Config) {
		c.Mode, c.QuotaHold = mode, 0
		c.Breaker.Floor, c.Breaker.Timeout, c.Breaker.Open, c.Breaker.OpenMax = 25*time.Millisecond, 250*time.Millisecond, 10*time.Millisecond, 100*time.Millisecond
	})
	var group sync.WaitGroup
	for range 4 {
		group.Go(d.draw)
	}
	every := max(draws/10, 100)
	for i := 0; d.wait(draws - (i+1)*every); i++ {
		if i%2 == 0 {
			d.kill()
		} else {
			d.freeze()
		}
	}
	group.Wait()
	if err := d.source.Close(); err != nil {
		t.Error(err)
	}
	_, err := d.source.Draw(t.Context(), make([]byte, 16))
	if entropy.KindOf(err) != entropy.KindClosed {
		t.Errorf("a draw after Close: %v", err)
	}
	d.judge(draws)
	if err := goleak.Find(leaks); err != nil {
		t.Error(err)
	}
}

// driller draws and disturbs.
type driller struct {
	t       *testing.T
	watch   *watcher
	address string
	server  *process
	source  *grpc.Source

	mu    sync.Mutex // guards all below
	left  int
	seen  map[string]bool
	kinds map[entropy.Kind]int
}

// draw draws until enough were asked for. One that the breaker kept back was not.
func (d *driller) draw() {
	sizes := []int{64, 1000, 20480}
	for i := 0; ; i++ {
		buf := make([]byte, sizes[i%len(sizes)])
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if i%97 == 0 { // some callers leave early
			ctx, cancel = context.WithTimeout(context.Background(), 50*time.Microsecond)
		}
		b, err := d.source.Draw(ctx, buf)
		cancel()
		if err == nil {
			if err := checkSealed(b); err != nil {
				d.t.Error(err)
			}
		} else if kind := entropy.KindOf(err); kind == "" && !errors.Is(err, context.DeadlineExceeded) {
			d.t.Errorf("an error without a kind: %v", err)
		} else if kind == entropy.KindOpen {
			<-time.After(time.Millisecond)
			continue
		}
		if !d.count(b, entropy.KindOf(err), err == nil) {
			return
		}
	}
}

func (d *driller) count(b entropy.Block, k entropy.Kind, ok bool) (more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left--
	d.kinds[k]++
	if ok && d.seen[string(b.Bytes[:sealEnd])] {
		d.t.Errorf("block %d was handed out twice", b.Sequence)
	}
	if ok {
		d.seen[string(b.Bytes[:sealEnd])] = true
	}
	return d.left > 0
}

// wait waits until only so many draws are left, and reports whether any are.
func (d *driller) wait(left int) bool {
	for left > 0 {
		d.mu.Lock()
		now := d.left
		d.mu.Unlock()
		if now <= left {
			return true
		}
		<-time.After(time.Millisecond)
	}
	return false
}

// kill ends the server for good and, when the breaker has opened, starts another.
func (d *driller) kill() {
	d.clear()
	_ = d.server.cmd.Process.Kill()
	<-d.watch.opened
	d.server = spawn(d.t, d.address, drillFaults...)
}

// freeze stops the server until the breaker has opened. What it was asked before is answered when it goes on.
func (d *driller) freeze() {
	d.clear()
	_ = d.server.cmd.Process.Signal(syscall.SIGSTOP)
	<-d.watch.opened
	_ = d.server.cmd.Process.Signal(syscall.SIGCONT)
}

func (d *driller) clear() {
	select {
	case <-d.watch.opened:
	default:
	}
}

// judge looks at the outcomes and at the breaker's way.
func (d *driller) judge(draws int) {
	t := d.t
	t.Logf("%d draws: outcomes %v (empty: a block, or its caller left), breaker changed %d times", draws, d.kinds, len(d.watch.events))
	if good := len(d.seen); good < draws/2 {
		t.Errorf("only %d blocks of %d draws", good, draws)
	}
	want := []entropy.Kind{entropy.KindTimeout, entropy.KindTransport, entropy.KindProtocol}
	for _, k := range want {
		if d.kinds[k] == 0 && draws > 2000 {
			t.Errorf("no error of kind %s in %v", k, slices.Collect(maps.Keys(d.kinds)))
		}
	}
	state, closed := breaker.Closed, 0
	for i, e := range d.watch.events {
		legal := e.From == state
		switch {
		case e.From == breaker.Closed && e.To == breaker.Open:
			legal = legal && e.Failures == 3
		case e.From == breaker.Open && e.To == breaker.HalfOpen:
			legal = legal && !e.At.Before(d.watch.events[i-1].Until)
		case e.From == breaker.HalfOpen && e.To == breaker.Closed:
			closed++
		default:
			legal = legal && e.From == breaker.HalfOpen && e.To == breaker.Open
		}
		if !legal {
			t.Errorf("event %d: %+v after state %s", i, e, state)
		}
		state = e.To
	}
	if closed == 0 {
		t.Error("the breaker never closed again")
	}
}
