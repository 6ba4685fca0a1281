package dispatch

import (
	"context"
	"fmt"
	"strings"

	"qr-gateway/gateway/queue"
)

// RepeatError is for a job that repeats another one of its caller ([Job.Repeat]) and can't have its answer: it was not queued.
type RepeatError struct {
	First string      // id of the job that it repeats
	State queue.State // of that job
	Other bool        // the job asks for something else than the first
	Why   error       // the answer of the first can't be had, or nil: none is kept

	ticket queue.Ticket
}

func (e *RepeatError) Error() string {
	if e.Other {
		return fmt.Sprintf("the same caller has sent another request with the same key before, as %s", e.First)
	}
	text := fmt.Sprintf("the same caller has sent this request before, as %s, which is %s", e.First, e.State)
	if e.Why != nil {
		text += "; its answer can't be had: " + e.Why.Error()
	}
	return text
}

// Unwrap returns why the answer of the first can't be had.
func (e *RepeatError) Unwrap() error { return e.Why }

// mark stands between a job's id and the digest of what it asks for, in the queue's id of it.
const mark = "."

// named is the id of a job in the queue. That of a job which may be repeated says what it asks for, so that whoever repeats it learns from
// the ticket whether the request is the same.
func (j Job) named() string {
	if j.Repeat == "" || j.Digest == "" {
		return j.ID
	}
	return j.ID + mark + j.Digest
}

// unnamed takes a queue's id of a job apart.
func unnamed(id string) (own, digest string) {
	at := strings.LastIndex(id, mark)
	if at < 0 {
		return id, ""
	}
	return id[:at], id[at+len(mark):]
}

// submit queues the job, unless it repeats another.
func (w *watch) submit(ctx context.Context) (queue.Ticket, error) {
	ticket, err := w.queue.Submit(ctx, w.job)
	if err != nil || ticket.ID == w.job.ID {
		return ticket, err
	}
	e := &RepeatError{State: ticket.State, ticket: ticket}
	var digest string
	e.First, digest = unnamed(ticket.ID)
	if _, own := unnamed(w.job.ID); own != digest {
		e.Other = own != "" && digest != ""
	}
	return ticket, e
}
