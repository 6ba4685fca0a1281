package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestGateIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		first := g.Join()
		if err := first.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		order := make(chan int, 10)
		for i := range 10 {
			turn := g.Join()
			go func() {
				if err := turn.Take(t.Context()); err != nil {
					t.Error(err)
				}
				order <- i
				turn.Give()
			}()
			synctest.Wait()
		}
		first.Give()
		for want := range 10 {
			if got := <-order; got != want {
				t.Errorf("turn %d went to %d", want, got)
			}
		}
	})
}

func TestGateAlternates(t *testing.T) {
	// Two members that always want in get every other turn, however long the turns are.
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		order := make(chan int, 20)
		for i := range 2 {
			turn := g.Join()
			go func() {
				for range 10 {
					if err := turn.Take(t.Context()); err != nil {
						t.Error(err)
					}
					<-time.After(time.Duration(1+9*i) * time.Millisecond)
					order <- i
					turn.Give()
				}
			}()
		}
		synctest.Wait()
		last := -1
		for i := range 20 {
			got := <-order
			if got == last && i < 18 { // at the end one of them has gone
				t.Errorf("member %d went twice in a row", got)
			}
			last = got
		}
	})
}

func TestGateLetsWaitersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		holder, waiter, next := g.Join(), g.Join(), g.Join()
		if err := holder.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- waiter.Take(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled waiter: %v", err)
		}
		holder.Give()
		if err := next.Take(t.Context()); err != nil {
			t.Errorf("gate is stuck: %v", err)
		}
		next.Give()
	})
}

func TestGateGrantRacingCancel(t *testing.T) {
	// Whichever of a grant and a cancel comes first, the gate is free afterwards.
	for range 200 {
		var g Gate
		holder, waiter := g.Join(), g.Join()
		if err := holder.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		taken := make(chan error)
		go func() { taken <- waiter.Take(ctx) }()
		go cancel()
		holder.Give()
		if err := <-taken; err == nil {
			waiter.Give()
		}
		cancel()
		if err := holder.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		holder.Give()
	}
}

func TestNoGateNeverWaits(t *testing.T) {
	var g *Gate
	a, b := g.Join(), g.Join()
	if err := errors.Join(a.Take(t.Context()), b.Take(t.Context())); err != nil {
		t.Error(err)
	}
	a.Give()
	b.Give()
}

func TestGateDoesNotAllocate(t *testing.T) {
	var g Gate
	turn := g.Join()
	if n := testing.AllocsPerRun(100, func() {
		if err := turn.Take(t.Context()); err != nil {
			t.Error(err)
		}
		turn.Give()
	}); n > 1 { // t.Context may allocate
		t.Errorf("%v allocations per turn", n)
	}
}
