package dispatch

import (
	"context"
	"fmt"

	"qr-gateway/gateway/queue"
)

// RepeatError is for a job that repeats another one of its caller ([Job.Repeat]): it was not queued.
type RepeatError struct {
	First string      // id of the job that it repeats
	State queue.State // of that job
}

func (e *RepeatError) Error() string {
	return fmt.Sprintf("the same caller has sent this request before, as %s, which is %s", e.First, e.State)
}

// submit queues the job, unless it repeats another.
func (w *watch) submit(ctx context.Context) (queue.Ticket, error) {
	ticket, err := w.queue.Submit(ctx, w.job)
	if err == nil && ticket.ID != w.job.ID {
		err = &RepeatError{First: ticket.ID, State: ticket.State}
	}
	return ticket, err
}
