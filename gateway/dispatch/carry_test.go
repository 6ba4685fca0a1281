package dispatch_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
)

// torn starts a request whose frames come through its log, and has that lose some of them.
func (r *rig) torn(resumes bool) (*call, queue.Lease) {
	r.Helper()
	c := dispatch.DefaultConfig()
	c.Carry = true
	var err error
	if r.d, err = dispatch.New(c, dispatch.Deps{Queue: r.q, Log: r.q}); err != nil {
		r.Fatal(err)
	}
	j := job("a")
	j.Resumes = resumes
	s := &sink{}
	do := r.doJob(j, s, s)
	l := r.claim()
	if err := r.q.Heartbeat(r.Context(), l, queue.Progress{Seq: 1}); err != nil {
		r.Fatal(err)
	}
	for _, seq := range []int64{1, 3} {
		frame := dispatch.Frame{Job: "a", Seq: seq, Event: backends.Event{Content: "word ", Tokens: []int32{int32(seq)}}}
		if err := r.q.Append(r.Context(), l, entry(r, true, dispatch.Logged{First: seq, Frame: frame})); err != nil {
			r.Fatal(err)
		}
	}
	synctest.Wait()
	return do, l
}

// TestTornLog: a run whose frames can't be had any more ends, whether another one takes the answer up or not.
func TestTornLog(t *testing.T) {
	for name, resumes := range map[string]bool{"given up": false, "taken up": true} {
		t.Run(name, func(t *testing.T) {
			bench(t, 4, nil, func(r *rig) {
				do, first := r.torn(resumes)
				if s := r.state("a"); s != queue.StateCancelled {
					r.Errorf("the run that nobody can read is %s", s)
				}
				select {
				case <-first.Lost:
				default:
					r.Error("its node is not told")
				}
				if !resumes {
					r.kind(do, backends.KindLost)
					return
				}
				second := r.claim()
				p, err := dispatch.Unpack(second.Job.Payload)
				if err != nil || second.Job.ID != "a~1" || !slices.Equal(p.Delivered, []int32{1}) {
					r.Errorf("job %s, %v", second.Job.ID, err)
				}
				do.cancel(nil)
				<-do.done
			})
		})
	}
}
