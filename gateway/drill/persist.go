package drill

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// retries are those of OpenAI's clients.
const retries = 2

// Persist asks as OpenAI's clients do: it tries again where that may help, after the time that the gateway tells. Each try has an id of its own.
func Persist(ctx context.Context, client *http.Client, url string, r Request, start time.Time, patience time.Duration) []Exchange {
	var all []Exchange
	for n := 0; ; n++ {
		try := r
		if n > 0 {
			try.ID = fmt.Sprintf("%s-again%d", r.ID, n)
		}
		a := Ask(ctx, client, url, try, start, patience)
		all = append(all, Exchange{try, a})
		if n == retries || a.Ending != Refused || !a.Again {
			return all
		}
		wait := a.RetryAfter
		if wait <= 0 || wait > time.Minute {
			wait = time.Second / 2 << n
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return all
		}
	}
}

// retry notes what a refusal says of trying again.
func (a *asked) retry(h http.Header) {
	if seconds, err := strconv.Atoi(h.Get("Retry-After")); err == nil {
		a.RetryAfter = time.Duration(seconds) * time.Second
	}
	switch {
	case h.Get("X-Should-Retry") != "":
		a.Again = h.Get("X-Should-Retry") == "true"
	default:
		a.Again = a.Status == http.StatusTooManyRequests || a.Status == http.StatusRequestTimeout || a.Status == http.StatusConflict || a.Status >= 500
	}
}
