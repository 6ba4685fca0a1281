package drill

import (
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// wire is one way of a line, as a toxic that is always there. It does what Toxiproxy's own don't:
//   - to lose what comes on the connections that there are, and not on those to come, as when something in between has forgotten them;
//   - to keep what comes and let it through later. Toxiproxy's latency does that too, but taking it away waits five seconds for each piece
//     that it keeps for a connection that is broken by then, and nobody can connect until that is over.
//
// It also ends when the proxy is closed, where Toxiproxy's would wait for ever to write to a connection that is broken.
type wire struct {
	ended chan struct{} // closed by end
	end   func()

	mu   sync.Mutex // guards what follows
	last int        // number of the newest connection
	lost int        // of the newest one that loses everything
	pace time.Duration
	gate chan struct{} // closed unless everything is kept
}

// ride is what a wire knows of one connection.
type ride struct {
	number int
	piece  *stream.StreamChunk // that is to be passed on
}

var _ toxics.StatefulToxic = (*wire)(nil)

// open makes it what NewProxy needs; Toxiproxy makes toxics itself, and empty.
func (w *wire) open() {
	w.ended, w.gate = make(chan struct{}), make(chan struct{})
	w.end = sync.OnceFunc(func() { close(w.ended) })
	close(w.gate)
}

// NewState implements [toxics.StatefulToxic].
func (w *wire) NewState() any {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	return &ride{number: w.last}
}

// Pipe implements [toxics.Toxic].
func (w *wire) Pipe(stub *toxics.ToxicStub) {
	r, _ := stub.State.(*ride)
	for {
		if r.piece == nil {
			select {
			case r.piece = <-stub.Input:
			case <-stub.Interrupt:
				return
			case <-w.ended:
			}
		}
		switch {
		case r.piece == nil: // the end of the connection, or of the proxy
			w.drain(stub)
			return
		case !w.pass(stub, r):
			return
		}
	}
}

// pass passes a piece on. It says false when it was interrupted before it could; the piece is kept then.
func (w *wire) pass(stub *toxics.ToxicStub, r *ride) bool {
	w.mu.Lock()
	gate, pace, lost := w.gate, w.pace, r.number <= w.lost
	w.mu.Unlock()
	var late <-chan time.Time
	if pace > 0 {
		late = time.After(pace)
		gate = nil
	}
	select {
	case <-gate:
	case <-late:
	case <-stub.Interrupt:
		return false
	case <-w.ended:
		r.piece = nil
		return true
	}
	if lost {
		r.piece = nil
		return true
	}
	select {
	case stub.Output <- r.piece:
	case <-stub.Interrupt:
		return false
	case <-w.ended:
	}
	r.piece = nil
	return true
}

// drain takes what comes until nothing does any more.
func (*wire) drain(stub *toxics.ToxicStub) {
	for c := range stub.Input {
		_ = c // it is lost
	}
	stub.Close()
}

// lose loses everything from now on, on the connections there are.
func (w *wire) lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = w.last
}

// hold keeps everything until what it returns is called.
func (w *wire) hold() (on func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gate := make(chan struct{})
	w.gate = gate
	return sync.OnceValue(func() error { close(gate); return nil })
}

// slow makes each piece of up to 32 KiB take so long.
func (w *wire) slow(pace time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pace = pace
}

// count is how many connections there have been.
func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}
