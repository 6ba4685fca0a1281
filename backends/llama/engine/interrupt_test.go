//go:build llama && cgo

package engine

import (
	"errors"
	"testing"
	"time"
)

// interruptAfter calls Interrupt once at has passed, and returns when it did.
func interruptAfter(c *Context, at time.Duration) <-chan time.Time {
	called := make(chan time.Time, 1)
	time.AfterFunc(at, func() {
		now := time.Now()
		c.Interrupt()
		called <- now
	})
	return called
}

func TestInterruptInMidPrompt(t *testing.T) {
	m := realModel(t)
	cfg := ContextConfig{Context: 2048, Batch: 2048, UBatch: 512, Sequences: 2, Outputs: 2, Threads: 1, KVType: F32, Unified: true}
	c := open(t, m, cfg)
	ids := script(1500, m.Info().Vocabulary)
	// The best of a few tries: on a busy machine the thread may not run when it is told to stop.
	late := time.Hour
	for range 3 {
		late = min(late, lateness(t, c, ids))
	}
	if late > 100*time.Millisecond {
		t.Errorf("decode returned %v after the interrupt", late)
	}
	if err := c.Decode(); !errors.Is(err, ErrInterrupted) {
		t.Errorf("decode before Resume: %v", err)
	}
	c.Resume()
	c.Clear()
	want := feed(t, open(t, m, cfg), 0, 0, ids[:20]...)
	if d := distance(feed(t, c, 0, 0, ids[:20]...), want); d != 0 {
		t.Errorf("after Clear the context is off by %g", d)
	}
}

// lateness is how long a long prompt goes on after Interrupt.
func lateness(t *testing.T, c *Context, ids []int32) time.Duration {
	t.Helper()
	c.Clear()
	c.Resume()
	c.Batch().Reset()
	for i, id := range ids {
		add(t, c, id, i, 0, false)
	}
	called := interruptAfter(c, 50*time.Millisecond)
	err := c.Decode()
	end := time.Now()
	if !errors.Is(err, ErrInterrupted) {
		t.Fatalf("decode: %v", err)
	}
	return end.Sub(<-called)
}

// interrupted fills seq 0 with part of ids by an interrupted decode. It looks for the moment with longer and longer
// delays, since a prompt takes 20 times as long as its first part.
func interrupted(t *testing.T, c *Context, ids []int32) {
	t.Helper()
	for wait := time.Millisecond; wait < time.Minute; wait = wait * 3 / 2 {
		c.Clear()
		c.Resume()
		c.Batch().Reset()
		for i, id := range ids {
			add(t, c, id, i, 0, false)
		}
		called := interruptAfter(c, wait)
		err := c.Decode()
		<-called
		if errors.Is(err, ErrInterrupted) && c.PosMax(0) >= 0 {
			c.Resume()
			return
		}
	}
	t.Fatal("no decode could be interrupted half-way")
}

// With attention what was decoded stays and can be built on; a recurrent state is undefined, and says so.
func TestAfterAnInterrupt(t *testing.T) {
	for name, memory := range kinds {
		t.Run(name, func(t *testing.T) {
			m := tiny(t, name)
			cfg := exact()
			cfg.Context, cfg.Batch, cfg.UBatch = 2048, 2048, 64
			c := open(t, m, cfg)
			ids := script(1500, 512)
			interrupted(t, c, ids)
			at := c.PosMax(0) + 1
			if memory == MemoryAttention || memory == MemorySlidingWindow {
				want := feed(t, open(t, m, cfg), 0, 0, ids[:at+1]...)
				if d := distance(feed(t, c, 0, at, ids[at]), want); d > tolerance {
					t.Errorf("going on behind position %d is off by %g", at-1, d)
				}
				return
			}
			staleUntilReplaced(t, m, c, at)
		})
	}
}

func staleUntilReplaced(t *testing.T, m *Model, c *Context, at int) {
	t.Helper()
	c.Batch().Reset()
	add(t, c, 1, at, 0, true)
	if err := c.Decode(); !errors.Is(err, ErrStale) {
		t.Errorf("going on with an undefined state: %v", err)
	}
	if err := c.SeqCopy(0, 1, -1, -1); !errors.Is(err, ErrStale) {
		t.Errorf("copying an undefined state: %v", err)
	}
	ids := script(61, 512)
	want := plainRows(t, m, ids[:60], ids[60:])[1]
	feed(t, c, 2, 0, ids[:60]...)
	copySeq(t, c, 2, 0, -1, -1)
	if d := distance(feed(t, c, 0, 60, ids[60]), want); d > tolerance {
		t.Errorf("a state copied over the undefined one is off by %g", d)
	}
}

func TestInterruptOfAClosedContext(t *testing.T) {
	c := open(t, tiny(t, "llama"), exact())
	c.Close()
	c.Interrupt()
	c.Resume()
	c.Close()
	if err := c.Decode(); !errors.Is(err, ErrClosed) {
		t.Errorf("decode: %v", err)
	}
	if err := c.Batch().Add(1, 0, 0, true); !errors.Is(err, ErrBatchFull) {
		t.Errorf("add: %v", err)
	}
	if _, err := c.Logits(0); err == nil {
		t.Error("a row of a closed context")
	}
}
