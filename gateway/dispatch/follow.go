package dispatch

import (
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/queue"
)

// follower is one job as its client sees it. It belongs to the goroutine that called Do.
type follower struct {
	job       Job
	sink      Sink
	waits     Waits
	retried   func(model, phase string)
	submitted time.Time
	claimed   bool // a node has had it

	position int       // as last told to the sink
	epoch    int64     // frames of older ones are dropped
	seq      int64     // of the last frame taken in this epoch
	told     bool      // by the run itself that it has failed: it ends
	content  bool      // the client has text of this job
	last     time.Time // when a frame was taken last
	resumes  resumes
	result   *backends.Result
}

// place tells the sink where the job is, if that is news.
func (f *follower) place(position int, wait time.Duration) {
	if position == f.position {
		return
	}
	f.position = position
	f.sink.Queued(position, wait)
}

// frame takes what a node sent.
func (f *follower) frame(in Frame) error {
	if in.Epoch < f.epoch || in.Epoch == f.epoch && in.Seq <= f.seq {
		return nil
	}
	if err := f.advance(in.Epoch); err != nil {
		return err
	}
	f.seq, f.last = in.Seq, time.Now()
	f.leased()
	switch {
	case in.Err != nil:
		f.told = in.Seq != torn
		return in.Err
	case in.Result != nil:
		f.result = in.Result
		return nil
	default:
		e, err := f.resumes.take(in.Event)
		if err != nil {
			return err
		}
		f.content = f.content || Visible(e)
		return f.sink.Event(e)
	}
}

// advance goes on to a newer run. The queue never starts one when the client has part of the answer; should it happen all
// the same, the job ends rather than contradict itself.
func (f *follower) advance(epoch int64) error {
	if epoch <= f.epoch {
		return nil
	}
	if f.content {
		return lost("the job was started again after its answer had begun")
	}
	if f.epoch%round > 0 && f.epoch/round == epoch/round && f.retried != nil {
		f.retried(f.job.Model, RetryEarly)
	}
	f.epoch, f.seq = epoch, 0
	return nil
}

// leased notes that the job has left the line.
func (f *follower) leased() {
	f.place(0, 0)
	if !f.claimed && f.waits != nil {
		f.waits.Waited(f.job.Model, time.Since(f.submitted))
	}
	f.claimed = true
}

// status takes what the queue says. A terminal status may overtake the last frames, which are in the inbox by then.
func (f *follower) status(s queue.Status, inbox <-chan Frame) error {
	switch {
	case s.State == queue.StateQueued:
		f.place(s.Position, s.Wait)
		if s.Epoch == 0 {
			return nil
		}
		return f.advance(s.Epoch + 1)
	case !s.State.Terminal():
		f.leased()
		return f.advance(s.Epoch)
	}
	for f.result == nil {
		select {
		case frame := <-inbox:
			if err := f.frame(frame); err != nil {
				return err
			}
		default:
			return ended(s)
		}
	}
	return nil
}

// ended is the error for a job that the queue ended without a last frame.
func ended(s queue.Status) error {
	switch s.State {
	case queue.StateExpired:
		return &backends.Error{
			Kind: backends.KindUnavailable, Code: "queue_timeout", Message: s.Reason,
			Hint: "try again later, or raise queue.wait_timeout",
		}
	case queue.StateCancelled:
		return &backends.Error{
			Kind: backends.KindUnavailable, Code: "cancelled", Message: "the request was cancelled: " + s.Reason, Err: ErrCancelled,
		}
	case queue.StateDone:
		return lost("the node reported the end, but its result did not arrive")
	default:
		return lost(s.Reason)
	}
}

func lost(why string) error {
	return &backends.Error{
		Kind: backends.KindLost, Code: "engine_lost", Message: "the engine was lost while it ran this request: " + why,
		Hint: "send the request again",
	}
}
