package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/queue"
)

// What Deliver and Do answer besides the errors of their arguments.
var (
	// ErrGone is for a frame of a job that nobody waits for: its client left, or it has ended. The run should stop.
	ErrGone = errors.New("nobody waits for this job")
	// ErrLive is for a job whose id is in use.
	ErrLive = errors.New("a job with this id is live")
	// ErrCancelled is for a job that somebody other than its client cancelled.
	ErrCancelled = errors.New("job was cancelled")
)

// Config sizes a dispatcher.
type Config struct {
	Buffer int    // frames a job may be ahead of its client; then its worker waits. At least 1
	Owner  string // where nodes on other machines reach this gateway; empty where there are none
	// Patience is how long an answer that has begun may stand still after the queue has lost its job. Its node tells the queue
	// of the job again as long as it lives.
	Patience time.Duration
	// Resume is how often an answer that has begun may be taken up by another worker, when its own is lost; 0 is never.
	Resume int
	Join   bool // who repeats a request gets the answer of the first, which [Deps.Log] keeps; else a *RepeatError
	Carry  bool // nodes on other machines send frames through [Deps.Log]
	// Outlive has jobs whose answer is kept for who repeats them ([Config.Join]) go on when the context of Do ends: others share the queue.
	Outlive bool
}

// DefaultConfig lets a worker run a few tokens ahead, and an answer lose two workers.
func DefaultConfig() Config {
	return Config{Buffer: 16, Patience: 15 * time.Second, Resume: 2, Join: true}
}

// Validate reports a value out of range.
func (c Config) Validate() error {
	if c.Buffer < 1 {
		return fmt.Errorf("frame buffer is %d; it must be at least 1", c.Buffer)
	}
	if c.Patience < 0 {
		return fmt.Errorf("patience is %s; it can't be negative", c.Patience)
	}
	if c.Resume < 0 {
		return fmt.Errorf("answers are taken up %d times; it can't be negative", c.Resume)
	}
	return nil
}

// Waits is told how long a job waited for a node. It must not block.
type Waits interface {
	Waited(model string, d time.Duration)
}

// Phases of a request that is tried again, as [Retries] is told of them.
const (
	RetryEarly   = "before_first_text" // another run began, unseen by the client
	RetryResumed = "continued"         // another worker took the answer up
	RetryAgain   = "resubmitted"       // the queue had forgotten it
	RetryJoined  = "joined"            // a client sent it again, and got the answer of the first
)

// Retries is an optional power of [Waits]: to be told of each try after the first. It must not block.
type Retries interface {
	Retried(model, phase string)
}

// Deps is what a dispatcher works with.
type Deps struct {
	Queue queue.Submitter
	Log   Reader // optional; without it nobody gets the answer of a request sent before
	Waits Waits  // optional
}

// Dispatcher implements the gateway's dispatcher and the node's frame sink.
type Dispatcher struct {
	cfg  Config
	deps Deps

	mu   sync.Mutex
	live map[string]*inbox // by job id; guarded by mu
}

// inbox takes the frames of one job.
type inbox struct {
	frames chan Frame
	gone   chan struct{} // closed when Do has returned
}

// Frame is one message of a node about a job. With Result or Err it is the run's last one; else it carries Event.
type Frame struct {
	Job    string
	Epoch  int64 // of the lease that the run has
	Seq    int64 // from 1, one higher with each frame of an epoch
	Event  backends.Event
	Result *backends.Result
	Err    *backends.Error
}

// Visible says that the client can tell that it got e: the job must not be started again after it.
func Visible(e backends.Event) bool {
	return e.Content != "" || e.Reasoning != "" || len(e.Tokens) > 0 || len(e.Raw) > 0
}

// New makes a dispatcher without jobs.
func New(cfg Config, deps Deps) (*Dispatcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check dispatcher: %w", err)
	}
	if cfg.Carry && deps.Log == nil {
		return nil, errors.New("check dispatcher: frames are to come through the log, and there is none")
	}
	return &Dispatcher{cfg: cfg, deps: deps, live: map[string]*inbox{}}, nil
}

// Do queues a job and follows it until it has ended. When ctx ends or the sink refuses an event, the job is cancelled
// wherever it is ([Config.Outlive] makes an exception). An answer whose worker is lost or shuts down after its first text is taken up by another one, where the model can
// ([Job.Resumes]): the sink sees one unbroken answer, and the result says where. A job that repeats another ([Job.Repeat]) gets the answer
// of the first from its beginning, and when it ends the first goes on. Errors: *queue.FullError, *RepeatError, *backends.Error, the
// sink's, or ctx's.
func (d *Dispatcher) Do(ctx context.Context, job Job, sink Sink) (*backends.Result, error) {
	job.ID = job.named()
	f := &follower{job: job, sink: sink, submitted: time.Now(), waits: d.deps.Waits, retried: d.retried, position: -1}
	f.resumes.keep = d.logs(job)
	for {
		result, err := d.part(ctx, f)
		if again, ok := errors.AsType[*RepeatError](err); ok {
			return d.join(ctx, f, again)
		}
		switch {
		case err == nil:
			f.resumes.tell(result)
			return result, nil
		case ctx.Err() != nil:
			return nil, errors.Join(err, d.abandon(ctx, f, err))
		case !f.goesOn(err, d.cfg.Resume):
			return nil, errors.Join(f.ending(err), d.abandon(ctx, f, err))
		}
		_ = d.abandon(ctx, f, err) // as a rule it has ended. Where the queue is away, that is noticed when the rest is queued
		d.retried(job.Model, RetryResumed)
		f.resume(job, err)
	}
}

// logs says whether the answer of a job is kept for those who repeat it.
func (d *Dispatcher) logs(job Job) bool { return job.Repeat != "" && d.cfg.Join && d.deps.Log != nil }

// retried counts a try after the first.
func (d *Dispatcher) retried(model, phase string) {
	if r, ok := d.deps.Waits.(Retries); ok {
		r.Retried(model, phase)
	}
}

// part queues what is to be done of a job and follows it.
func (d *Dispatcher) part(ctx context.Context, f *follower) (*backends.Result, error) {
	job := f.job
	work := Work{Prepared: job.Prepared, Log: f.resumes.keep, Said: f.resumes.said()}
	payload, err := work.Pack()
	if err != nil {
		return nil, fmt.Errorf("encode job %s: %w", job.ID, err)
	}
	in, err := d.enter(job.ID)
	if err != nil {
		return nil, err
	}
	defer d.leave(job.ID, in)
	w := &watch{queue: d.deps.Queue, hub: d, patience: d.cfg.Patience, job: queue.Job{
		ID: job.ID, Key: job.Key, Owner: d.cfg.Owner, Model: job.Model, Class: job.class(), Weight: job.Weight, Cost: job.Prepared.Cost(),
		Payload: payload, Prefixes: Prefixes(job.Model, job.Prepared.Tokens), IdempotencyKey: job.Repeat,
	}}
	ticket, err := w.submit(ctx)
	if err != nil {
		return nil, queueError(err)
	}
	if s, ok := f.sink.(RoomSink); ok && ticket.Room != (queue.Room{}) && !f.claimed {
		s.Room(ticket.Room)
	}
	f.place(ticket.Position, ticket.Wait)
	return d.follow(ctx, f, in, w)
}

func (j Job) class() queue.Class {
	if j.Task {
		return queue.ClassTask
	}
	return queue.ClassChat
}

func (d *Dispatcher) enter(id string) (*inbox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live[id] != nil {
		return nil, fmt.Errorf("take job %s: %w", id, ErrLive)
	}
	in := &inbox{frames: make(chan Frame, d.cfg.Buffer), gone: make(chan struct{})}
	d.live[id] = in
	return in, nil
}

func (d *Dispatcher) leave(id string, in *inbox) {
	close(in.gone)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.live, id)
}

// follow reads what comes until the job has ended.
func (d *Dispatcher) follow(ctx context.Context, f *follower, in *inbox, w *watch) (*backends.Result, error) {
	watching, stop := context.WithCancel(ctx)
	c := d.carry(watching, f.job.ID)
	defer c.end()
	defer stop()
	defer w.stop()
	err := w.begin(watching, f)
	for f.result == nil && err == nil {
		select {
		case frame := <-in.frames:
			err = f.frame(frame)
		case s, open := <-w.states:
			switch {
			case !open:
				err = w.begin(watching, f)
			case s.State.Terminal() && c.hold(s):
				w.states = nil
			default:
				err = f.status(s, in.frames)
			}
		case <-c.whole():
			err = f.status(c.release(), in.frames)
		case <-w.again():
			err = w.begin(watching, f)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return f.result, err
}

// cancelTime bounds the cancelling of a job whose client has left.
const cancelTime = 5 * time.Second

// abandon cancels a job, unless its run has said that it has failed, for then it settles the job itself, or somebody may come for its answer.
func (d *Dispatcher) abandon(ctx context.Context, f *follower, why error) error {
	if f.told || ctx.Err() != nil && d.cfg.Outlive && f.resumes.keep {
		return nil
	}
	return d.cancel(ctx, f.job.ID, why)
}

// cancel makes sure that nobody goes on working for a client that is gone. It does nothing to a job that has ended.
func (d *Dispatcher) cancel(ctx context.Context, id string, why error) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer stop()
	err := d.deps.Queue.Cancel(ctx, id, why.Error())
	if err == nil || errors.Is(err, queue.ErrUnknown) || errors.Is(err, queue.ErrClosed) {
		return nil
	}
	return fmt.Errorf("cancel job: %w", err)
}

// Deliver hands a frame to its job. It blocks while the job's client is behind, until ctx ends. ErrGone tells the run to
// stop. What a frame refers to belongs to the receiver afterwards.
func (d *Dispatcher) Deliver(ctx context.Context, frame Frame) error {
	d.mu.Lock()
	in := d.live[frame.Job]
	d.mu.Unlock()
	if in == nil {
		return ErrGone
	}
	select {
	case in.frames <- frame:
		return nil
	case <-in.gone:
		return ErrGone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// queueError is what a client is told when its job can't be queued.
func queueError(err error) error {
	e := &backends.Error{Kind: backends.KindUnavailable, Hint: "try again in a moment", Err: err}
	switch {
	case errors.Is(err, queue.ErrClosed):
		e.Code, e.Message = "shutting_down", "the gateway is shutting down"
	case errors.Is(err, queue.ErrUnavailable):
		e.Code, e.Message = "queue_unavailable", "the gateway can't reach its queue"
	case errors.Is(err, queue.ErrTooLarge):
		e.Kind, e.Code, e.Hint = backends.KindInvalid, "request_too_large", "shorten the request"
		e.Message = "the request is too large for the queue"
	default:
		return err
	}
	return e
}
