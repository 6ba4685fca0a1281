package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/wire"
)

// line is the connection of one plugin.
type line interface {
	// next reads a frame, whose body is valid until the next one is read.
	next() (wire.Frame, error)
	// send writes a whole frame.
	send(frame []byte) error
}

// seat is a request under its handle on one connection.
type seat struct {
	req  *request
	turn uint64 // frame that has shown it last
}

// job is a row to be answered.
type job struct {
	row *wire.Row
	req *request
	at  int // of the answer
}

// session is one connection of a plugin. Its state belongs to the goroutine that runs it, but for what says otherwise; while rows are decided
// in parallel, that goroutine only waits.
type session struct {
	srv     *Server
	hello   *wire.Hello
	shape   wire.Shape
	shared  *memory    // nil: there is none
	scratch *sync.Pool // of samplers, for whole rows
	inline  bool       // whole rows come in the frame
	ending  atomic.Bool
	gone    atomic.Bool // it has ended
	live    atomic.Int64

	seats   map[uint32]*seat
	turn    uint64
	seq     uint64
	now     time.Time // of the frame at hand
	step    wire.Step
	answers []wire.Answer
	out     []byte
	ends    []uint32
	quick   []job
	slow    []job

	taken  atomic.Int64  // jobs of quick that have been taken
	wake   chan struct{} // one for each helper that is to help
	rested chan struct{} // one for each that has
	hands  int
	help   sync.WaitGroup
	wait   sync.WaitGroup // slow rows
}

func newSession(s *Server, hello *wire.Hello) *session {
	return &session{
		srv: s, hello: hello, seats: map[uint32]*seat{},
		shape: wire.Shape{K: min(s.cfg.Top, hello.Vocab), Vocab: hello.Vocab, Rows: hello.MaxRows}, scratch: s.rows.pool(hello.Vocab),
		wake: make(chan struct{}, maxHands), rested: make(chan struct{}, maxHands),
	}
}

// maxHands is how many goroutines at most help a session with its rows.
const maxHands = 64

// run answers frames until the line ends or brings what can't be.
func (s *session) run(ctx context.Context, l line) error {
	defer context.AfterFunc(ctx, func() { s.ending.Store(true) })()
	defer s.end()
	debug.SetPanicOnFault(true)
	for {
		f, err := l.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.take(ctx, f, l)
		}
		if err != nil {
			return err
		}
	}
}

// end lets go of everything.
func (s *session) end() {
	s.gone.Store(true)
	close(s.wake)
	s.help.Wait()
	for handle, t := range s.seats {
		t.req.release(s, handle)
	}
	if s.shared != nil {
		s.shared.close()
	}
}

func (s *session) take(ctx context.Context, f wire.Frame, l line) error {
	s.now = time.Now()
	s.turn++
	switch f.Kind {
	case wire.KindBegin:
		return s.begin(ctx, f)
	case wire.KindEnd:
		return s.ended(f)
	case wire.KindStep:
		if err := s.rows(ctx, f); err != nil {
			return err
		}
		return l.send(s.out)
	default:
	}
	return &wire.RefusedError{Code: wire.CodeKind, Message: fmt.Sprintf("a plugin sends no %s frame here", f.Kind)}
}

func (s *session) begin(ctx context.Context, f wire.Frame) error {
	g, err := wire.ParseBegin(f.Body)
	if err != nil {
		return err
	}
	if _, used := s.seats[g.Handle]; used {
		return &wire.RefusedError{Code: wire.CodeForm, Message: fmt.Sprintf("handle %d is begun a second time", g.Handle)}
	}
	if !s.fits(g) {
		return &wire.RefusedError{Code: wire.CodeForm, Message: fmt.Sprintf("a request is begun at token %d with a history of %d", g.Step, len(g.History))}
	}
	if err := s.makeRoom(); err != nil {
		return err
	}
	s.seats[g.Handle] = &seat{req: s.srv.begin(ctx, s, g)}
	s.live.Store(int64(len(s.seats)))
	return nil
}

// makeRoom forgets handles whose requests have moved on: a plugin may not know that they ended.
func (s *session) makeRoom() error {
	most := 4*s.shape.Rows + 64
	if len(s.seats) < most {
		return nil
	}
	for handle, t := range s.seats {
		if !t.req.owned(s, handle) {
			delete(s.seats, handle)
		}
	}
	if len(s.seats) < most {
		return nil
	}
	return &wire.RefusedError{Code: wire.CodeBusy, Message: fmt.Sprintf("the plugin has %d requests at once; it has at most %d rows", len(s.seats), s.shape.Rows), Hint: "end those that are over"}
}

func (s *session) ended(f wire.Frame) (err error) {
	if s.ends, err = wire.ParseEnd(s.ends[:0], f.Header, f.Body); err != nil {
		return err
	}
	for _, handle := range s.ends {
		if t := s.seats[handle]; t != nil {
			t.req.release(s, handle)
			delete(s.seats, handle)
		}
	}
	s.live.Store(int64(len(s.seats)))
	return nil
}

// rows answers a step.
func (s *session) rows(ctx context.Context, f wire.Frame) error {
	rest := f.Flags&wire.FlagRest != 0
	if rest && f.Seq != s.seq || !rest && f.Seq <= s.seq {
		return &wire.RefusedError{Code: wire.CodeReplay, Message: fmt.Sprintf("step frame %d comes after frame %d", f.Seq, s.seq), Hint: "connect again"}
	}
	s.seq = f.Seq
	if err := s.step.Parse(f.Header, f.Body, s.shape); err != nil {
		return err
	}
	if err := s.deal(); err != nil {
		return err
	}
	s.decide(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.srv.counts.steps.Add(1)
	s.srv.counts.rows.Add(uint64(len(s.answers)))
	s.out = wire.AppendChoice(s.out[:0], f.Seq, s.answers)
	return nil
}

// deal sorts the rows into those that are answered at once and those that wait for their numbers.
func (s *session) deal() error {
	s.answers, s.quick, s.slow = s.answers[:0], s.quick[:0], s.slow[:0]
	for i := range s.step.Rows {
		row := &s.step.Rows[i]
		s.answers = append(s.answers, answer(choice.Unknown))
		if row.Form == wire.Inline && !s.inline {
			return &wire.RefusedError{Code: wire.CodeForm, Message: "a whole row is in the frame", Hint: "put it into the memfd"}
		}
		t := s.seats[row.Handle]
		switch {
		case t == nil:
			continue
		case t.turn == s.turn:
			return &wire.RefusedError{Code: wire.CodeForm, Message: fmt.Sprintf("handle %d has two rows in one step", row.Handle)}
		case t.req.quick:
			s.quick = append(s.quick, job{row, t.req, i})
		default:
			s.slow = append(s.slow, job{row, t.req, i})
		}
		t.turn = s.turn
	}
	return nil
}

// decide answers all rows at hand: those that wait each on a goroutine of its own, the others on as many as there are processors.
func (s *session) decide(ctx context.Context) {
	if len(s.slow) > 0 {
		until, cancel := context.WithDeadline(ctx, s.now.Add(s.srv.cfg.Deadline))
		defer cancel()
		for _, j := range s.slow {
			s.wait.Go(func() {
				debug.SetPanicOnFault(true)
				s.answers[j.at] = j.req.decide(until, s, j.row)
			})
		}
	}
	s.taken.Store(0)
	n := s.helpers()
	s.hire(ctx, n)
	for range n {
		s.wake <- struct{}{}
	}
	s.pull(ctx)
	for range n {
		<-s.rested
	}
	s.wait.Wait()
}

// alone is how much work one goroutine does without help: that of so many compact rows.
const (
	alone       = 4
	wholeWeighs = 16 // compact rows
)

// helpers is how many others are to help with the quick rows.
func (s *session) helpers() int {
	weight := 0
	for _, j := range s.quick {
		if j.row.Form == wire.Compact {
			weight++
		} else {
			weight += wholeWeighs
		}
	}
	return max(0, min(weight/alone, len(s.quick)-1, runtime.GOMAXPROCS(0)-1, maxHands))
}

// hire has n helpers there.
func (s *session) hire(ctx context.Context, n int) {
	for ; s.hands < n; s.hands++ {
		s.help.Go(func() {
			debug.SetPanicOnFault(true)
			for range s.wake {
				s.pull(ctx)
				s.rested <- struct{}{}
			}
		})
	}
}

// pull answers quick rows until none is left.
func (s *session) pull(ctx context.Context) {
	for {
		i := int(s.taken.Add(1)) - 1
		if i >= len(s.quick) {
			return
		}
		j := &s.quick[i]
		s.answers[j.at] = j.req.decide(ctx, s, j.row)
	}
}
