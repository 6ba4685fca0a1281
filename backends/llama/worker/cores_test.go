package worker

import (
	"testing"
	"time"
)

// play notes n decodes that take what took says for a number of threads, and returns how many used all four.
func play(c *Cores, n int, took func(threads int) time.Duration) (all int) {
	for range n {
		threads := c.Threads(1)
		if threads != 1 {
			all++
		}
		c.Note(threads, 1, took(threads))
	}
	return all
}

func ms(all, one float64) func(int) time.Duration {
	return func(threads int) time.Duration {
		if threads == 1 {
			return time.Duration(one * float64(time.Millisecond))
		}
		return time.Duration(all * float64(time.Millisecond))
	}
}

func TestCoresFollowTheLoad(t *testing.T) {
	c := NewCores(4)
	if got := play(c, 2000, ms(6, 11)); got != 2000 {
		t.Errorf("quiet: %d of 2000 decodes on all threads, want each", got)
	}
	if got := play(c, 200, ms(60, 12)); got > 30 {
		t.Errorf("disturbed: %d of 200 decodes on all threads, want no more than it takes to notice", got)
	}
	if got := play(c, 4000, ms(60, 12)); got > 60 {
		t.Errorf("disturbed for long: %d of 4000 decodes on all threads, want ever rarer trials", got)
	}
	play(c, 1100, ms(6, 11))
	if got := play(c, 1000, ms(6, 11)); got != 1000 {
		t.Errorf("quiet again: %d of 1000 decodes on all threads, want each", got)
	}
}

func TestCoresKeepAllWhereTheyAreStillBest(t *testing.T) {
	c := NewCores(4)
	play(c, 100, ms(6, 11))
	if got := play(c, 5000, ms(14, 25)); got < 4900 {
		t.Errorf("slower, but best: %d of 5000 decodes on all threads", got)
	}
}

func TestPromptsGetAllCores(t *testing.T) {
	c := NewCores(4)
	play(c, 100, ms(6, 11))
	play(c, 200, ms(60, 12))
	if one, prompt := c.Threads(1), c.Threads(256); one != 1 || prompt != 4 {
		t.Errorf("disturbed: %d threads for a token and %d for a prompt, want 1 and 4", one, prompt)
	}
}

func TestCoresIgnoreBatchesAndSingleCores(t *testing.T) {
	c := NewCores(4)
	for range 1000 {
		c.Note(c.Threads(8), 8, time.Hour)
	}
	if got := c.Threads(1); got != 4 {
		t.Errorf("after slow batches: %d threads, want 4", got)
	}
	single := NewCores(1)
	play(single, 1000, ms(100, 1))
	if got := single.Threads(1); got != 1 {
		t.Errorf("one core: %d threads", got)
	}
}
