package node_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/fake"
	"qr-gateway/gateway/queue"
)

// TestCarried: answers come whole through the logs of their jobs, also where workers are lost.
func TestCarried(t *testing.T) {
	for losses, at := range map[int][]int{0: nil, 1: {3}, 3: {3, 3}} {
		benchWith(t, 2, one(2, lostAt(3, losses)), parts{carry: true}, func(r *rig) {
			a := r.doWith(&call{id: "a", whole: true}, "m", 8)
			r.right(a)
			if a.err == nil && !slices.Equal(a.result.Stats.ContinuedAt, at) {
				r.Errorf("%d losses: taken up at %v, want %v", losses, a.result.Stats.ContinuedAt, at)
			}
		})
	}
}

// TestCarriedAndRepeated: who repeats such a request has its answer as well.
func TestCarriedAndRepeated(t *testing.T) {
	g := &barrier{at: 4}
	benchWith(t, 1, g.model, parts{carry: true}, func(r *rig) {
		a := r.again("a")
		synctest.Wait()
		b := r.again("b")
		after(time.Second)
		g.goOn <- struct{}{}
		r.right(a)
		r.copied(b, a)
		r.copied(r.again("c"), a)
	})
}

// TestCarriedClientLeaves: its run ends, though nobody is at the other end of the log.
func TestCarriedClientLeaves(t *testing.T) {
	g := &barrier{at: 4}
	benchWith(t, 1, g.model, parts{carry: true}, func(r *rig) {
		a := r.do("a")
		after(time.Second)
		a.cancel()
		a.wait()
		if s := r.stats(); s.Models["m"].Running != 0 || r.models["m"].Info().Busy != 0 {
			r.Errorf("%d jobs run, %d workers are busy", s.Models["m"].Running, r.models["m"].Info().Busy)
		}
	})
}

// TestCarriedFails: an error comes through the log as well.
func TestCarriedFails(t *testing.T) {
	benchWith(t, 1, one(1, lostAt(3, 1)), parts{carry: true}, func(r *rig) { r.kind(r.do("a"), backends.KindLost) })
}

// TestCarriedWhileTheLogIsAway: the answer waits for it. Where it takes nothing, the answer fails.
func TestCarriedWhileTheLogIsAway(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		times int
	}{"for a while": {queue.ErrUnavailable, 8}, "for good": {errors.New("disk is full"), 1 << 30}} {
		t.Run(name, func(t *testing.T) {
			logs := func(l queue.Log) queue.Log { return &brittle{Log: l, err: c.err, times: c.times} }
			slow := func(context.Context, string, int) error { after(time.Second); return nil }
			benchWith(t, 1, one(1, slow), parts{carry: true, logs: logs}, func(r *rig) {
				if a := r.do("a"); c.times < 100 {
					r.right(a)
				} else {
					r.kind(a, backends.KindLost)
				}
			})
		})
	}
}

// TestCarriedAfterALoss: what a run has written that was lost before its first text does no harm to the next one.
func TestCarriedAfterALoss(t *testing.T) {
	var stalls int
	hook := func(_ context.Context, _ string, step int) error {
		if step == 0 && stalls == 0 {
			stalls++
			return fake.Lost()
		}
		return nil
	}
	benchWith(t, 1, one(1, hook), parts{carry: true}, func(r *rig) {
		r.right(r.do("a"))
	})
}
