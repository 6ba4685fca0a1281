package breaker_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/entropy/grpc/breaker"
)

func plain() breaker.Config {
	c := breaker.DefaultConfig()
	c.Jitter = 0
	return c
}

func make1(t *testing.T, cfg breaker.Config, d breaker.Deps) *breaker.Breaker {
	t.Helper()
	b, err := breaker.New(cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// end makes calls that all end in one way.
func end(t *testing.T, b *breaker.Breaker, n int, o breaker.Outcome) {
	t.Helper()
	for range n {
		c, err := b.Begin()
		if err != nil {
			t.Fatal(err)
		}
		b.End(c, o)
	}
}

func TestRefusalsDoNotCount(t *testing.T) {
	b := make1(t, plain(), breaker.Deps{})
	end(t, b, 2, breaker.Failure)
	end(t, b, 100, breaker.Excluded)
	if s := b.Status(); s.State != breaker.Closed || s.Failures != 2 {
		t.Errorf("after two failures and refusals: %+v", s)
	}
	end(t, b, 1, breaker.Failure)
	if s := b.Status(); s.State != breaker.Open {
		t.Errorf("the third failure in a row does not open it: %+v", s)
	}
}

func TestOnlyTimeoutsAreCensored(t *testing.T) {
	cfg := plain()
	cfg.Floor, cfg.Failures = 0, 1000
	b := make1(t, cfg, breaker.Deps{})
	for range cfg.Window {
		c, _ := b.Begin()
		b.Sample(c, 2*time.Millisecond)
		b.End(c, breaker.Success)
	}
	end(t, b, 10, breaker.Failure) // lost connections
	if got := b.Timeout(0); got != 3*time.Millisecond {
		t.Errorf("after lost connections the limit is %v, want 3ms", got)
	}
	for range 2 { // nearest rank: one outlier of a hundred is not the 99th percentile, two are
		c, _ := b.Begin()
		b.Sample(c, b.Timeout(0))
		b.End(c, breaker.Failure)
	}
	if got := b.Timeout(0); got != 4500*time.Microsecond {
		t.Errorf("after two time-outs the limit is %v, want 4.5ms", got)
	}
}

// TestOneTrial: of many callers of an open breaker whose time has come, one passes.
func TestOneTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := make1(t, plain(), breaker.Deps{})
		end(t, b, 3, breaker.Failure)
		<-time.After(plain().Open)
		var mu sync.Mutex
		var passed []breaker.Call
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				if c, err := b.Begin(); err == nil {
					mu.Lock()
					passed = append(passed, c)
					mu.Unlock()
				} else if !errors.Is(err, breaker.ErrOpen) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if len(passed) != 1 || !passed[0].Trial {
			t.Fatalf("%d calls passed", len(passed))
		}
		b.End(passed[0], breaker.Excluded) // its caller went away: the next one tries
		c, err := b.Begin()
		if err != nil || !c.Trial {
			t.Fatalf("after a trial without a verdict: %+v, %v", c, err)
		}
		b.End(c, breaker.Success)
		if s := b.Status(); s.State != breaker.Closed || s.Failures != 0 || s.Opens != 0 {
			t.Errorf("after a trial that succeeded: %+v", s)
		}
	})
}

// TestLateResults: calls that began before a change of state decide nothing after it.
func TestLateResults(t *testing.T) {
	now := time.Unix(0, 0)
	b := make1(t, plain(), breaker.Deps{Now: func() time.Time { return now }})
	early, _ := b.Begin()
	end(t, b, 3, breaker.Failure)
	b.End(early, breaker.Success)
	if s := b.Status(); s.State != breaker.Open || s.Failures != 3 {
		t.Fatalf("a late success changed an open breaker: %+v", s)
	}
	now = now.Add(time.Minute)
	c, err := b.Begin()
	if err != nil {
		t.Fatal(err)
	}
	b.End(early, breaker.Failure)
	b.Sample(early, time.Hour)
	if s := b.Status(); s.State != breaker.HalfOpen || s.Samples != 0 {
		t.Fatalf("a late failure changed a half-open breaker: %+v", s)
	}
	b.End(c, breaker.Success)
}

func TestOpenTimeGrowsAndIsJittered(t *testing.T) {
	cfg := breaker.DefaultConfig()
	cfg.Open, cfg.OpenMax, cfg.Jitter = time.Second, 5*time.Second, 0.5
	for _, dice := range []float64{0, 0.5, 0.999} {
		now := time.Unix(0, 0)
		b := make1(t, cfg, breaker.Deps{Now: func() time.Time { return now }, Dice: func() float64 { return dice }})
		end(t, b, 3, breaker.Failure)
		var got []time.Duration
		for range 5 {
			wait := b.Status().Until.Sub(now)
			got = append(got, wait.Round(time.Millisecond))
			now = now.Add(wait)
			end(t, b, 1, breaker.Failure)
		}
		var want []time.Duration
		for _, full := range []float64{1, 2, 4, 5, 5} {
			want = append(want, time.Duration(full*(1-0.5*dice)*1e9).Round(time.Millisecond))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("dice %v: open times (-want +got):\n%s", dice, d)
		}
	}
}

func TestForce(t *testing.T) {
	var events []breaker.Event
	b := make1(t, plain(), breaker.Deps{Now: func() time.Time { return time.Unix(7, 0) }, Changed: func(e breaker.Event) { events = append(events, e) }})
	b.Force(breaker.ForceOpen)
	if _, err := b.Begin(); !errors.Is(err, breaker.ErrOpen) {
		t.Errorf("forced open: %v", err)
	}
	b.Force(breaker.ForceClosed)
	end(t, b, 10, breaker.Failure)
	if s := b.Status(); s.State != breaker.Closed || s.Failures != 0 {
		t.Errorf("forced closed: %+v", s)
	}
	b.Force(breaker.Auto)
	b.Force(breaker.Auto)
	end(t, b, 3, breaker.Failure)
	at := time.Unix(7, 0)
	want := []breaker.Event{
		{From: breaker.Closed, To: breaker.Open, At: at, Forced: true},
		{From: breaker.Open, To: breaker.Closed, At: at, Forced: true},
		{From: breaker.Closed, To: breaker.Closed, At: at},
		{From: breaker.Closed, To: breaker.Open, At: at, Until: at.Add(plain().Open), Failures: 3},
	}
	if d := cmp.Diff(want, events); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

func TestTimeoutBounds(t *testing.T) {
	cfg := plain()
	cfg.Floor, cfg.Timeout = 100*time.Millisecond, time.Second
	b := make1(t, cfg, breaker.Deps{})
	if got := b.Timeout(0); got != time.Second {
		t.Errorf("without samples the limit is %v, want the cap", got)
	}
	for range 20 {
		c, _ := b.Begin()
		b.Sample(c, time.Millisecond)
	}
	for floor, want := range map[time.Duration]time.Duration{0: 100 * time.Millisecond, 400 * time.Millisecond: 400 * time.Millisecond, time.Hour: time.Second} {
		if got := b.Timeout(floor); got != want {
			t.Errorf("a draw that takes %v gets %v, want %v", floor, got, want)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, change := range map[string]func(*breaker.Config){
		"timeout":            func(c *breaker.Config) { c.Timeout = 0 },
		"timeout_floor":      func(c *breaker.Config) { c.Floor = 2 * time.Hour },
		"timeout_multiplier": func(c *breaker.Config) { c.Multiplier = 0.5 },
		"timeout_window":     func(c *breaker.Config) { c.Window = 1e9 },
		"breaker_failures":   func(c *breaker.Config) { c.Failures = 0 },
		"breaker_open":       func(c *breaker.Config) { c.Open = 0 },
		"breaker_open_max":   func(c *breaker.Config) { c.OpenMax = 48 * time.Hour },
		"breaker_jitter":     func(c *breaker.Config) { c.Jitter = 2 },
	} {
		cfg := breaker.DefaultConfig()
		change(&cfg)
		if _, err := breaker.New(cfg, breaker.Deps{}); err == nil {
			t.Errorf("a bad %s is accepted", name)
		}
	}
	if err := breaker.DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}
