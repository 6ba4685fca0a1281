package model

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"
)

// found is where a state was first reached from.
type found struct {
	before State
	what   string
}

// trace tells how a state comes about.
func trace(seen map[State]found, s State) string {
	var steps []string
	for {
		f := seen[s]
		if f.what == "" {
			break
		}
		steps = append([]string{f.what}, steps...)
		s = f.before
	}
	return strings.Join(steps, "\n  ")
}

// walk visits every state that can be reached, and returns each with a way to it.
func walk(l Limits, visit func(s State, steps []Step) string) (seen map[State]found, failure string) {
	start := Start(l)
	seen = map[State]found{start: {}}
	next := []State{start}
	for len(next) > 0 {
		s := next[len(next)-1]
		next = next[:len(next)-1]
		steps := s.Next(l)
		if why := visit(s, steps); why != "" {
			return seen, fmt.Sprintf("%s\n  %s\n  %+v", why, trace(seen, s), s)
		}
		for _, step := range steps {
			if _, ok := seen[step.After]; !ok {
				seen[step.After] = found{s, fmt.Sprintf("%s %d", step.What, step.Who)}
				next = append(next, step.After)
			}
		}
	}
	return seen, ""
}

// wrong is what must never be, in any state.
func wrong(s State) string {
	for j, c := range s.Clients {
		switch {
		case c.Spoilt:
			return fmt.Sprintf("client %d got text twice, or out of order", j)
		case c.End == Whole && c.Text != Content:
			return fmt.Sprintf("client %d was told that its answer is whole, and has %d of %d pieces", j, c.Text, Content)
		}
	}
	if a, b := s.Runs[0], s.Runs[1]; a.Job == b.Job && a.Holds(&s) && b.Holds(&s) {
		return "two workers hold one lease"
	}
	return ""
}

// wrongStep is what must never happen.
func wrongStep(s State, step Step) string {
	for j := range Jobs {
		before, after := s.Clients[j], step.After.Clients[j]
		if before.End != Open && after != before && !after.Dead {
			return fmt.Sprintf("%s: the answer of client %d changes after its end", step.What, j)
		}
		q, to := s.Jobs[j].State, step.After.Jobs[j]
		if q.Terminal() && to.State != q && to.State != Absent && to.Epoch == s.Jobs[j].Epoch {
			return fmt.Sprintf("%s: job %d changes after its end", step.What, j)
		}
	}
	return ""
}

// worlds are what a test has time for: everything of two jobs with one fault, of one job with two; with QR_VERIFY one fault more.
func worlds() map[string]Limits {
	out := map[string]Limits{
		"two jobs": {Jobs: 2, Attempts: 2, Faults: 1, Rounds: 1},
		"one job":  {Jobs: 1, Attempts: 2, Faults: 2, Rounds: 2},
	}
	if os.Getenv("QR_VERIFY") != "" {
		out["one job, three faults"] = Limits{Jobs: 1, Attempts: 2, Faults: 3, Rounds: 2}
		out["two jobs, two faults"] = Limits{Jobs: 2, Attempts: 2, Faults: 2, Rounds: 2}
	}
	return out
}

// TestEveryState walks all that can happen.
func TestEveryState(t *testing.T) {
	for name, l := range worlds() {
		t.Run(name, func(t *testing.T) {
			seen, failure := walk(l, func(s State, steps []Step) string {
				why := wrong(s)
				for _, step := range steps {
					why = cmp.Or(why, wrongStep(s, step))
				}
				return why
			})
			if failure != "" {
				t.Fatal(failure)
			}
			t.Logf("%d states", len(seen))
		})
	}
}

// TestEverythingEnds: without further faults, and whatever the order, every answer comes to an end. There is no way in which things may go
// round for ever, and where nothing is left to happen all answers have ended.
func TestEverythingEnds(t *testing.T) {
	for name, l := range worlds() {
		t.Run(name, func(t *testing.T) {
			seen, _ := walk(l, func(State, []Step) string { return "" })
			ends(t, l, seen)
		})
	}
}

// visiting is a state with what is left to follow of it.
type visiting struct {
	State
	steps []Step
}

func ends(t *testing.T, l Limits, seen map[State]found) {
	const open, closed = 1, 2
	mark := map[State]uint8{}
	for s := range seen {
		if mark[s] != 0 {
			continue
		}
		mark[s] = open
		stack := []visiting{{s, must(s, l)}}
		if len(stack[0].steps) == 0 && !s.Settled() {
			t.Fatalf("nothing need happen any more, and an answer has not ended\n  %s\n  %+v", trace(seen, s), s)
		}
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if len(top.steps) == 0 {
				mark[top.State] = closed
				stack = stack[:len(stack)-1]
				continue
			}
			step := top.steps[0]
			top.steps = top.steps[1:]
			switch mark[step.After] {
			case open:
				t.Fatalf("%s leads back to where it came from\n  %s\n  %+v", step.What, trace(seen, s), step.After)
			case 0:
				mark[step.After] = open
				next := visiting{step.After, must(step.After, l)}
				if len(next.steps) == 0 && !next.Settled() {
					t.Fatalf("nothing need happen any more, and an answer has not ended\n  %s\n  %+v", trace(seen, step.After), step.After)
				}
				stack = append(stack, next)
			}
		}
	}
}

func must(s State, l Limits) (out []Step) {
	for _, step := range s.Next(l) {
		if step.Must {
			out = append(out, step)
		}
	}
	return out
}
