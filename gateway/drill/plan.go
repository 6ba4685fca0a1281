package drill

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds.
const (
	Kill   Kind = "kill"   // kill -9; started again at the end
	Wipe   Kind = "wipe"   // kill -9, and what is on the disk is lost
	Flush  Kind = "flush"  // FLUSHALL
	Freeze Kind = "freeze" // SIGSTOP, and SIGCONT at the end
	Cut    Kind = "cut"    // connections break, and none is made until the end
	HoldUp Kind = "hold"   // nothing comes through from the side that dialled until the end
	HoldIn Kind = "deaf"   // nothing comes back to it until the end
	HoleUp Kind = "hole"   // what is sent from it is lost until the end, when connections break
	HoleIn Kind = "mute"   // what is sent to it is
	LoseUp Kind = "lose"   // what is sent from it is lost, on the connections there are, which stay
	LoseIn Kind = "miss"   // what is sent to it is
	Reset  Kind = "reset"  // connections are reset when something comes, until the end
	Slow   Kind = "slow"   // everything takes 20 to 180 ms longer
)

// Fault is one fault.
type Fault struct {
	Kind   Kind
	Target string
	At     time.Duration // since the run's start
	For    time.Duration
}

// End is when it is mended.
func (f Fault) End() time.Duration { return f.At + f.For }

func (f Fault) String() string {
	return fmt.Sprintf("%7.2fs to %7.2fs %-6s %s", f.At.Seconds(), f.End().Seconds(), f.Kind, f.Target)
}

// Targets are what faults can be done to, by name.
type Targets struct {
	Gateways, Workers []string
	Server            string   // Redis
	Lines             []string // network lines
}

// Schedule bounds a plan.
type Schedule struct {
	Span     time.Duration // in which faults begin and end
	Gap      time.Duration // between them, on average
	Min, Max time.Duration // how long one lasts
}

// Plan draws faults: each kind on each sort of target in turn, in random order. A target has one fault at a time.
func Plan(rng *rand.Rand, all Targets, s Schedule) []Fault {
	menu := all.menu()
	rng.Shuffle(len(menu), func(i, j int) { menu[i], menu[j] = menu[j], menu[i] })
	var out []Fault
	free := map[string]time.Duration{}
	at := s.Gap
	for n := 0; at < s.Span-s.Max; n++ {
		d := menu[n%len(menu)]
		f := Fault{Kind: d.kind, Target: d.targets[rng.IntN(len(d.targets))], For: between(rng, s.Min, s.Max)}
		f.At = max(at, free[f.Target])
		if f.At < s.Span-s.Max {
			out = append(out, f)
			free[f.Target] = f.End() + s.Min
		}
		at += between(rng, s.Gap/2, s.Gap*3/2)
	}
	slices.SortStableFunc(out, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return out
}

func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rng.Int64N(int64(high-low)+1))
}

type dish struct {
	kind    Kind
	targets []string
}

func (t Targets) menu() []dish {
	server := []string{t.Server}
	return []dish{
		{Kill, t.Workers},
		{Kill, t.Workers},
		{Kill, t.Workers},
		{Freeze, t.Workers},
		{Kill, t.Gateways},
		{Freeze, t.Gateways},
		{Kill, server},
		{Wipe, server},
		{Flush, server},
		{Freeze, server},
		{Cut, t.Lines},
		{HoldUp, t.Lines},
		{HoldIn, t.Lines},
		{HoleUp, t.Lines},
		{HoleIn, t.Lines},
		{LoseUp, t.Lines},
		{LoseIn, t.Lines},
		{Reset, t.Lines},
		{Slow, t.Lines},
	}
}
