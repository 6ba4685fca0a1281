package api

import (
	"crypto/sha256"
	"encoding/hex"
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
	"X-RateLimit-Limit-Tokens, X-RateLimit-Remaining-Tokens, X-RateLimit-Reset-Tokens, " + ReplayedHeader

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

// SetRoom says what a caller may still have waiting, as OpenAI's headers do. What is not known is left out.
func SetRoom(h http.Header, r queue.Room) {
	for of, s := range map[string]queue.Share{"Requests": r.Jobs, "Tokens": r.Tokens} {
		if s.Limit == 0 {
			continue
		}
		h.Set("X-RateLimit-Limit-"+of, strconv.Itoa(s.Limit))
		h.Set("X-RateLimit-Remaining-"+of, strconv.Itoa(s.Left))
		if r.Reset >= 0 {
			h.Set("X-RateLimit-Reset-"+of, r.Reset.Round(time.Millisecond).String())
		}
	}
}

// ReplayedHeader says that an answer is that of a request sent before.
const ReplayedHeader = "Idempotent-Replayed"

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

// Digest tells requests with the same [RepeatHeader] apart: two are the same that go to the same path with the same body, byte for byte.
func Digest(path string, body []byte) string {
	sum := sha256.New()
	_, _ = sum.Write([]byte(path + "\x00")) // it never fails
	_, _ = sum.Write(body)
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// fromRepeat is the error for a request that was sent again and can't have the answer of the first. Clients must not try it once more by
// themselves: the reply would stay the same.
func fromRepeat(e *dispatch.RepeatError) *Error {
	out := &Error{Status: http.StatusConflict, Type: typeInvalid, Param: RepeatHeader, NoRetry: true, Err: e}
	why := ""
	if e.Why != nil {
		why = ", and its answer can't be had: " + e.Why.Error()
	}
	switch {
	case e.Other:
		out.Status, out.Code = http.StatusUnprocessableEntity, "idempotency_mismatch"
		out.Message = fmt.Sprintf("another request with this %s was sent before, %s; send another key with each request", RepeatHeader, e.First)
	case e.State.Terminal():
		out.Code = "idempotency_ended"
		out.Message = fmt.Sprintf("the request with this %s is %s and has ended (%s)%s; send another key to have it run once more", RepeatHeader, e.First, e.State, why)
	default:
		out.Code = "idempotency_in_progress"
		out.Message = fmt.Sprintf("the request with this %s is %s and still under way (%s)%s; its answer goes to whoever sent it first", RepeatHeader, e.First, e.State, why)
	}
	return out
}
