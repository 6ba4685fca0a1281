package vllm_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/vllmtest"
)

// TestStopBehindTheEnd holds that an answer is whole although the source fails for a row that the server shows behind its end.
func TestStopBehindTheEnd(t *testing.T) {
	why := &backends.Error{Kind: backends.KindEntropy, Code: "entropy_unavailable", Message: "unplugged"}
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			r := sampling(t, vllmtest.Options{Ahead: true}, nil)
			r.side.Script(at(6, vllmtest.Move{Status: choice.Stop, Err: why}))
			r.far.Set(func(o *vllmtest.Options) {
				o.Hold = func(q *http.Request, step int) {
					if step < 6 {
						return
					}
					select {
					case <-q.Context().Done(): // it was given up
					case <-time.After(20 * time.Millisecond):
					}
				}
			})
			o := ask(t.Context(), r, chat(stream, "")).well(t)
			if o.res.Stats.Tokens != 6 || o.res.Usage.CompletionTokens != 6 || o.res.Reason != "stop" {
				t.Errorf("it came to %+v", o.res)
			}
			r.idle(t)
		})
	}
}

// TestBehindTheEnd holds that what is chosen for a row behind the end is not told of as a token of the answer.
func TestBehindTheEnd(t *testing.T) {
	for _, told := range []bool{false, true} {
		for _, several := range []bool{false, true} {
			t.Run(fmt.Sprintf("records %t, several %t", told, several), func(t *testing.T) {
				r := sampling(t, vllmtest.Options{Ahead: true}, nil)
				q, n := chat(true, ""), 1
				if several {
					q, n = chat(true, `,"n":2`), 2
				}
				q.Params.DiagnosticMode = told
				s := ask(t.Context(), r, q).well(t).res.Stats
				if s.Tokens != 6*n || s.EntropyBytes != int64(16*7*n) || s.Discarded != int64(n) {
					t.Errorf("stats %+v", s)
				}
				for _, own := range append(s.Choices, s)[:n] {
					recorded(t, own, told)
				}
			})
		}
	}
}

// recorded asserts that an answer of six tokens has their records, if any, and is not flagged for more of them.
func recorded(t *testing.T, s backends.DecodeStats, told bool) {
	t.Helper()
	var steps []int
	for _, r := range s.Records {
		steps = append(steps, r.Step)
	}
	want, wantFlags := []int{0, 1, 2, 3, 4, 5}, map[string]int{vllmtest.Flag: 6}
	if !told {
		want, wantFlags = nil, nil
	}
	if diff := cmp.Diff(want, steps) + cmp.Diff(wantFlags, s.FlaggedTokens); diff != "" || s.FallbackTokens != len(want) || s.Pipelined != len(want) {
		t.Errorf("stats %+v (-want +got):\n%s", s, diff)
	}
}
