package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
)

// lastWords bounds what a run still has to say when its context is over, lastEntry what its log still has to take.
const (
	lastWords = 5 * time.Second
	lastEntry = 2 * time.Second
)

// run is one lease being worked on. The goroutine that called Generate owns it; the heartbeat reads sent and taken.
type run struct {
	node   *Node
	lease  queue.Lease
	frames FrameSink // nil: nobody but the log takes them
	log    *scribe
	kept   bool         // the answer is kept for those who repeat the request
	seq    int64        // frames sent
	sent   atomic.Int64 // of them with content
	taken  atomic.Int64 // tokens so far
	cost   int
}

// run works a lease off and settles it. It returns late when the backend was not there, to keep its slot from spinning.
func (n *Node) run(ctx context.Context, m Model, lease queue.Lease) {
	r := &run{node: n, lease: lease, frames: n.deps.Frames(lease.Job.Owner)}
	live, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var beat sync.WaitGroup
	beat.Go(func() { r.keep(live, stop) })
	outcome, settle := r.work(live, m)
	r.close(ctx)
	stop(nil)
	beat.Wait()
	if !settle {
		return
	}
	r.settle(ctx, outcome)
	if outcome.State == queue.StateQueued && outcome.Reason == "" {
		_ = pause(ctx, n.cfg.Pause) // its error is the context's, which ends the run anyway
	}
}

// work runs the job and sends its last frame. It reports how to settle the lease, or that there is nothing to settle.
func (r *run) work(ctx context.Context, m Model) (queue.Outcome, bool) {
	work, err := dispatch.UnpackWork(r.lease.Job.Payload)
	p := work.Prepared
	if err == nil {
		err = r.open(ctx, work)
	}
	if err != nil {
		return r.failed(ctx, fmt.Errorf("decode job %s: %w", r.lease.Job.ID, err)), true
	}
	r.cost = len(p.Tokens) + p.Estimate
	r.taken.Store(int64(r.cost))
	result, err := m.Backend.Generate(ctx, p, func(e backends.Event) error { return r.emit(ctx, e) })
	if err == nil {
		r.cost = result.Usage.PromptTokens + result.Usage.CompletionTokens
		if r.cost == 0 { // a server elsewhere need not tell
			r.cost = int(r.taken.Load())
		}
		err = r.send(ctx, dispatch.Frame{Result: result})
	}
	return r.outcome(ctx, err)
}

// emit sends one event. Before the first content it tells the queue, so that nobody starts the job again once its client
// has part of the answer.
func (r *run) emit(ctx context.Context, e backends.Event) error {
	if !dispatch.Visible(e) {
		return r.send(ctx, dispatch.Frame{Event: e})
	}
	r.taken.Add(int64(max(1, len(e.Tokens))))
	if r.sent.Load() == 0 {
		if err := r.begin(ctx); err != nil {
			return fmt.Errorf("report first content: %w", err)
		}
	}
	r.sent.Add(1)
	return r.send(ctx, dispatch.Frame{Event: e})
}

// begin tells the queue that the client is about to have part of the answer. While the queue can't be reached the answer waits: somebody
// else may have the job by the time it is back.
func (r *run) begin(ctx context.Context) error {
	for {
		err := r.node.deps.Queue.Heartbeat(ctx, r.lease, queue.Progress{Seq: 1, Cost: int(r.taken.Load())})
		if !errors.Is(err, queue.ErrUnavailable) {
			return err
		}
		if err := pause(ctx, r.node.cfg.Pause); err != nil {
			return err
		}
	}
}

func (r *run) send(ctx context.Context, f dispatch.Frame) error {
	r.seq++
	f.Job, f.Epoch, f.Seq = r.lease.Job.ID, r.lease.Epoch, r.seq
	if err := r.log.add(ctx, f); err != nil { // first: what a frame refers to is the gateway's afterwards
		return err
	}
	return r.deliver(ctx, f)
}

// deliver takes a frame to the gateway. One that is gone ends the run, but for an answer that somebody may come back for.
func (r *run) deliver(ctx context.Context, f dispatch.Frame) error {
	var err error
	if r.frames != nil {
		err = r.frames.Deliver(ctx, f)
	}
	switch {
	case r.frames != nil && (err == nil || !r.kept || ctx.Err() != nil):
		return err
	case r.log.alone():
		return nil
	case r.log.broken() != nil: // then nobody has the frame
		return errors.Join(dispatch.ErrGone, r.log.broken(), err)
	case r.frames != nil:
		r.node.deps.Log.InfoContext(ctx, "the gateway of a request is gone; its answer is kept for whoever repeats the request", "job", f.Job, "error", err)
		r.frames = nil
	}
	return nil
}

// errNoLog is for a job of a gateway that can't be reached.
var errNoLog = errors.New("its frames are to go through the log of the queue, which this node does not write")

// open begins the log of the job, if it has one.
func (r *run) open(ctx context.Context, w dispatch.Work) error {
	only := r.frames == nil
	switch {
	case r.node.deps.Logs != nil && (only || w.Log):
		r.log, r.kept = newScribe(ctx, r.node, r.lease, only), w.Log
	case only:
		return errNoLog
	}
	if r.log != nil && w.Said != nil {
		return r.log.say(w.Said)
	}
	return nil
}

// close ends the log. That it isn't whole is a matter of those who read it later.
func (r *run) close(ctx context.Context) {
	err := r.log.end(lastEntry)
	if err == nil || errors.Is(err, queue.ErrFenced) {
		return
	}
	r.node.deps.Log.WarnContext(ctx, "write log of answer", "job", r.lease.Job.ID, "error", err)
	if r.node.deps.Losses != nil {
		r.node.deps.Losses.LogLost(r.lease.Job.Model)
	}
}

// outcome decides what becomes of the job.
func (r *run) outcome(ctx context.Context, err error) (queue.Outcome, bool) {
	fresh := r.sent.Load() == 0
	var e *backends.Error
	known := errors.As(err, &e)
	switch {
	case err == nil:
		return queue.Outcome{State: queue.StateDone, Cost: r.cost}, true
	case errors.Is(context.Cause(ctx), queue.ErrFenced) || errors.Is(err, queue.ErrFenced):
		return queue.Outcome{}, false
	case errors.Is(err, dispatch.ErrGone):
		return queue.Outcome{State: queue.StateCancelled, Cost: r.cost, Reason: "the client left"}, true
	case fresh && (errors.Is(context.Cause(ctx), errDrained) || known && e.Kind == backends.KindUnavailable && e.Code != backends.CodeUnsampled):
		return queue.Outcome{State: queue.StateQueued}, true
	case fresh && errors.Is(err, backends.ErrLost):
		return queue.Outcome{State: queue.StateQueued, Reason: err.Error()}, true
	default:
		return r.failed(ctx, err), true
	}
}

// failed tells the client what went wrong.
func (r *run) failed(ctx context.Context, err error) queue.Outcome {
	e := clientError(ctx, err)
	if ctx.Err() != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer stop()
	}
	if lost := r.send(ctx, dispatch.Frame{Err: e}); lost != nil {
		err = errors.Join(err, lost)
	}
	return queue.Outcome{State: queue.StateFailed, Cost: r.cost, Reason: err.Error()}
}

// clientError is an error as its client may see it: one of ours whole, anything else without its text.
func clientError(ctx context.Context, err error) *backends.Error {
	var e *backends.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(context.Cause(ctx), errDrained):
		return &backends.Error{
			Kind: backends.KindUnavailable, Code: dispatch.CodeDrained, Message: "the node that ran this request is shutting down",
			Hint: "send the request again", Err: err,
		}
	default:
		return &backends.Error{Kind: backends.KindInternal, Code: "internal_error", Message: "the request failed inside the gateway", Err: err}
	}
}

// keep sends heartbeats until ctx ends, and ends the run when the lease is lost.
func (r *run) keep(ctx context.Context, stop context.CancelCauseFunc) {
	t := time.NewTicker(r.node.cfg.Heartbeat)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.lease.Lost:
			stop(queue.ErrFenced)
			return
		case <-t.C:
			r.beat(ctx, stop)
		}
	}
}

// beat sends one heartbeat. A queue that can't be reached doesn't end the run: its frames carry the epoch, so they are
// dropped if somebody else has the job by now.
func (r *run) beat(ctx context.Context, stop context.CancelCauseFunc) {
	ctx, done := context.WithTimeout(ctx, r.node.cfg.Heartbeat)
	defer done()
	err := r.node.deps.Queue.Heartbeat(ctx, r.lease, queue.Progress{Seq: r.sent.Load(), Cost: int(r.taken.Load())})
	switch {
	case errors.Is(err, queue.ErrFenced):
		stop(queue.ErrFenced)
	case err != nil && ctx.Err() == nil:
		r.node.deps.Log.WarnContext(ctx, "heartbeat", "job", r.lease.Job.ID, "error", err)
	}
}

func (r *run) settle(ctx context.Context, o queue.Outcome) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer stop()
	err := r.node.deps.Queue.Settle(ctx, r.lease, o)
	if err != nil && !errors.Is(err, queue.ErrFenced) {
		r.node.deps.Log.WarnContext(ctx, "settle", "job", r.lease.Job.ID, "state", string(o.State), "error", err)
	}
}
