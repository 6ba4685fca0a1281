package drill_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/gateway/drill"
)

const (
	piece  = `data: {"choices":[{"delta":{"content":"one "}}]}` + "\n\n"
	finish = `data: {"choices":[{"delta":{},"finish_reason":"stop"}],"qr":{"continued_at":[3]}}` + "\n\n"
	failed = `data: {"error":{"code":"engine_lost","message":"gone"}}` + "\n\n"
	done   = "data: [DONE]\n\n"
	whole  = `{"choices":[{"message":{"content":"one "},"finish_reason":"stop"}]}`
	noRoom = `{"error":{"code":"queue_full","message":"full"}}`
)

// serve answers with some text, and then ends the connection as it should be, breaks it, or says no more.
func serve(t *testing.T, status int, text, after string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server looks whether the client leaves
		w.WriteHeader(status)
		fmt.Fprint(w, text)
		w.(http.Flusher).Flush()
		switch after {
		case "break":
			panic(http.ErrAbortHandler)
		case "silence":
			<-r.Context().Done()
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestAsk(t *testing.T) {
	for name, c := range map[string]struct {
		status      int
		text, after string
		request     drill.Request
		want        drill.Answer
	}{
		"stream":  {200, ": queue 1\n\n" + piece + finish + done, "", drill.Request{Stream: true}, drill.Answer{Ending: drill.Whole, Status: 200, Text: "one ", Ends: 1, Continued: 1}},
		"failed":  {200, piece + failed, "", drill.Request{Stream: true}, drill.Answer{Ending: drill.Failed, Status: 200, Text: "one ", Ends: 1, Code: "engine_lost"}},
		"no end":  {200, piece + finish, "", drill.Request{Stream: true}, drill.Answer{Ending: drill.Broken, Status: 200, Text: "one ", Ends: 1, Continued: 1}},
		"broken":  {200, piece, "break", drill.Request{Stream: true}, drill.Answer{Ending: drill.Broken, Status: 200, Text: "one "}},
		"hung":    {200, piece, "silence", drill.Request{Stream: true}, drill.Answer{Ending: drill.Hung, Status: 200, Text: "one "}},
		"left":    {200, piece, "silence", drill.Request{Stream: true, Leave: 50 * time.Millisecond}, drill.Answer{Ending: drill.Left, Status: 200, Text: "one "}},
		"whole":   {200, whole, "", drill.Request{}, drill.Answer{Ending: drill.Whole, Status: 200, Text: "one ", Ends: 1}},
		"refused": {429, noRoom, "", drill.Request{Stream: true}, drill.Answer{Ending: drill.Refused, Status: 429, Ends: 1, Code: "queue_full"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			got := drill.Ask(t.Context(), client, serve(t, c.status, c.text, c.after), c.request, time.Now(), 500*time.Millisecond)
			got.Began, got.Ended, got.Message, got.Again = 0, 0, "", false
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAskNobody(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if got := drill.Ask(t.Context(), client, s.URL, drill.Request{}, time.Now(), time.Second); got.Ending != drill.Refused || got.Status != 0 {
		t.Errorf("got %+v", got)
	}
}

// TestPersist: who is refused comes again when told to, twice at most, and not where the gateway says that it would not help.
func TestPersist(t *testing.T) {
	for name, c := range map[string]struct {
		refusals int
		header   http.Header
		status   int
		want     []drill.Ending
	}{
		"taken":     {0, nil, 429, []drill.Ending{drill.Whole}},
		"full":      {1, http.Header{"Retry-After": {"1"}}, 429, []drill.Ending{drill.Refused, drill.Whole}},
		"always":    {9, http.Header{"Retry-After": {"1"}}, 503, []drill.Ending{drill.Refused, drill.Refused, drill.Refused}},
		"ran":       {1, http.Header{"X-Should-Retry": {"false"}}, 500, []drill.Ending{drill.Refused}},
		"bad":       {1, nil, 400, []drill.Ending{drill.Refused}},
		"no number": {1, nil, 503, []drill.Ending{drill.Refused, drill.Whole}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int32
			var ids, keys []string
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ids, keys = append(ids, r.Header.Get("X-Request-Id")), append(keys, r.Header.Get("Authorization"))
				if int(tries.Add(1)) > c.refusals {
					fmt.Fprint(w, whole)
					return
				}
				maps.Copy(w.Header(), c.header)
				w.WriteHeader(c.status)
				fmt.Fprint(w, noRoom)
			}))
			defer s.Close()
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			began := time.Now()
			all := drill.Persist(t.Context(), client, s.URL, drill.Request{ID: "a", Key: "k"}, began, never)
			var got []drill.Ending
			for _, x := range all {
				got = append(got, x.Ending)
			}
			if diff := cmp.Diff(c.want, got); diff != "" || len(ids) != len(got) || keys[0] != "Bearer k" {
				t.Errorf("keys %q, endings (-want +got):\n%s", keys, diff)
			}
			if c.header.Get("Retry-After") != "" && time.Since(began) < time.Duration(len(got)-1)*time.Second {
				t.Errorf("%d tries after %s", len(got), time.Since(began))
			}
			if len(ids) > 1 && ids[0] == ids[1] {
				t.Errorf("two tries have one id: %q", ids)
			}
		})
	}
}
