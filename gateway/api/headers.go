package api

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
)

// Headers of replies that tell of the queue.
const (
	positionHeader = "X-Queue-Position"
	waitHeader     = "X-Queue-Wait"
)

// QueueHeaders names the headers that tell of the queue and its limits, for browsers to be allowed to read them.
const QueueHeaders = positionHeader + ", " + waitHeader + ", X-RateLimit-Limit-Requests, X-RateLimit-Remaining-Requests, X-RateLimit-Reset-Requests, " +
	"X-RateLimit-Limit-Tokens, X-RateLimit-Remaining-Tokens, X-RateLimit-Reset-Tokens"

// SetQueued notes where a request stood when it was queued: its position, 0 being with a worker, and the estimated wait in seconds, rounded
// up, if one is known.
func SetQueued(h http.Header, position int, wait time.Duration) {
	h.Set(positionHeader, strconv.Itoa(position))
	if wait > 0 {
		h.Set(waitHeader, strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
	}
}

// Quota is one limit of the queue in OpenAI's terms. The zero value is none.
type Quota struct {
	Of               string // requests or tokens
	Limit, Remaining int
	Reset            time.Duration // until there should be room
}

// quotaOf is the limit behind a refusal. Bytes and deadlines have no name there.
func quotaOf(e *queue.FullError) Quota {
	q := Quota{Limit: e.Max, Remaining: max(0, e.Max-e.Depth), Reset: e.RetryAfter}
	switch e.Limit {
	case queue.LimitJobs, queue.LimitJobsPerKey:
		q.Of = "Requests"
	case queue.LimitTokens, queue.LimitTokensPerKey:
		q.Of = "Tokens"
	default:
		return Quota{}
	}
	return q
}

func (q Quota) write(h http.Header) {
	if q.Of == "" {
		return
	}
	h.Set("X-RateLimit-Limit-"+q.Of, strconv.Itoa(q.Limit))
	h.Set("X-RateLimit-Remaining-"+q.Of, strconv.Itoa(q.Remaining))
	h.Set("X-RateLimit-Reset-"+q.Of, q.Reset.String())
}

// RepeatHeader names a request, so that it isn't run again when it is sent again.
const RepeatHeader = "Idempotency-Key"

// maxRepeat bounds its value, in bytes.
const maxRepeat = 255

// Repeat reads [RepeatHeader]; empty is none.
func Repeat(h http.Header) (string, error) {
	key := h.Get(RepeatHeader)
	if len(key) > maxRepeat || len(h.Values(RepeatHeader)) > 1 {
		return "", Invalid(RepeatHeader, "the header %s takes one value of up to %d bytes; it has %d values, the first of %d bytes",
			RepeatHeader, maxRepeat, len(h.Values(RepeatHeader)), len(key))
	}
	return key, nil
}

// fromRepeat is the 409 for a request that was sent again. Clients must not try it once more by themselves: the answer would stay the same.
func fromRepeat(e *dispatch.RepeatError) *Error {
	out := &Error{Status: http.StatusConflict, Type: typeInvalid, Param: RepeatHeader, NoRetry: true, Err: e}
	if e.State.Terminal() {
		out.Code = "idempotency_ended"
		out.Message = fmt.Sprintf("the request with this %s is %s and has ended (%s); send another key to have it run once more", RepeatHeader, e.First, e.State)
		return out
	}
	out.Code = "idempotency_in_progress"
	out.Message = fmt.Sprintf("the request with this %s is %s and still under way (%s); its answer goes to whoever sent it first", RepeatHeader, e.First, e.State)
	return out
}
