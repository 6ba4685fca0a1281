package dispatch_test

import (
	"errors"
	"testing"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/memory"
)

// joins runs f with a dispatcher that gives repetitions the answer of the first.
func joins(t *testing.T, change func(*memory.Config), f func(r *rig)) {
	t.Helper()
	bench(t, 4, change, func(r *rig) {
		var err error
		if r.d, err = dispatch.New(dispatch.DefaultConfig(), dispatch.Deps{Queue: r.q, Log: r.q}); err != nil {
			r.Fatal(err)
		}
		f(r)
	})
}

// write appends stretches to the log of a job, in one entry.
func (r *rig) write(l queue.Lease, all ...dispatch.Logged) {
	r.Helper()
	if err := r.q.Append(r.Context(), l, entry(r.T, false, all...)); err != nil {
		r.Fatal(err)
	}
}

func stretch(first, last int64, text string, tokens ...int32) dispatch.Logged {
	return dispatch.Logged{First: first, Frame: dispatch.Frame{Seq: last, Event: backends.Event{Content: text, Tokens: tokens}}}
}

func result(seq int64) dispatch.Logged {
	return dispatch.Logged{First: seq, Frame: dispatch.Frame{Seq: seq, Result: &backends.Result{Reason: backends.ReasonStop}}}
}

// TestJoinedLog: what is in a log twice is told once; an answer of which something is missing is refused rather than told wrong.
func TestJoinedLog(t *testing.T) {
	said := func(text string, tokens ...int32) dispatch.Logged {
		return dispatch.Logged{Said: &dispatch.Said{Content: text, Tokens: tokens}}
	}
	for name, c := range map[string]struct {
		log  []dispatch.Logged
		sees []string // nil: it is refused
	}{
		"whole":                {[]dispatch.Logged{stretch(1, 2, "one "), stretch(3, 3, "two"), result(4)}, []string{"at 1", "at 0", "one ", "two"}},
		"written twice":        {[]dispatch.Logged{stretch(1, 2, "one "), stretch(1, 2, "one "), result(3)}, []string{"at 1", "at 0", "one "}},
		"a hole":               {[]dispatch.Logged{stretch(1, 2, "one "), stretch(4, 4, "three"), result(5)}, nil},
		"no beginning":         {[]dispatch.Logged{stretch(2, 2, "two"), result(3)}, nil},
		"no end":               {[]dispatch.Logged{stretch(1, 2, "one ")}, nil},
		"something before":     {[]dispatch.Logged{said("zero ", 9), stretch(1, 1, "one"), result(2)}, []string{"at 1", "zero ", "at 0", "one"}},
		"nothing was kept":     {nil, nil},
		"no form that we know": {[]dispatch.Logged{{First: 1, Frame: dispatch.Frame{Seq: 0}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			joins(t, nil, func(r *rig) {
				r.doJob(repeat("a", "once"), &sink{}, &sink{})
				s := &sink{}
				second := r.doJob(repeat("b", "once"), s, s)
				l := r.claim()
				if len(c.log) > 0 {
					r.write(l, c.log...)
				}
				r.finish(l, 9)
				second.wait()
				var e *dispatch.RepeatError
				switch {
				case c.sees != nil:
					if second.err != nil {
						r.Errorf("Do = %v", second.err)
					}
					r.sees(second, c.sees...)
				case !errors.As(second.err, &e) || e.First != "a" || e.Why == nil:
					r.Errorf("Do = %v, want a *RepeatError that says why", second.err)
				}
			})
		})
	}
}

// TestJoinedTooLate: a log that has lost its beginning is of no use.
func TestJoinedTooLate(t *testing.T) {
	joins(t, func(c *memory.Config) { c.LogEntries = 1 }, func(r *rig) {
		r.doJob(repeat("a", "once"), &sink{}, &sink{})
		l := r.claim()
		r.write(l, stretch(1, 1, "one"))
		r.write(l, stretch(2, 2, "two"))
		s := &sink{}
		second := r.doJob(repeat("b", "once"), s, s).wait()
		if !errors.As(second.err, new(*dispatch.RepeatError)) || !errors.Is(second.err, queue.ErrTrimmed) || len(r.seenText(s)) > 0 {
			r.Errorf("Do = %v", second.err)
		}
		r.finish(l, 3)
	})
}

// seenText is what a sink was told but for places in the line.
func (r *rig) seenText(s *sink) []string {
	var out []string
	for _, one := range s.seen() {
		if len(one) < 3 || one[:3] != "at " {
			out = append(out, one)
		}
	}
	return out
}
