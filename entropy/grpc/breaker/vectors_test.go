package breaker_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"qr-gateway/entropy/grpc/breaker"
)

// vectors are scripted calls with the state after each; see the file's own conventions.
type vectors struct {
	Defaults map[string]float64
	Indices  []struct {
		N     int
		Index *int
	} `json:"percentile_index"`
	Cases   []script
	Defects []script
}

type script struct {
	Name       string
	Generation string
	Params     map[string]float64
	Events     []struct {
		AtS      *float64          `json:"at_s"`
		AdvanceS float64           `json:"advance_s"`
		Attempts []json.RawMessage `json:"attempts"`
		Result   string
		Used     int     `json:"attempts_used"`
		TimeS    float64 `json:"time_s"`
		State    state
	}
}

type state struct {
	P99       float64  `json:"p99_ms"`
	Timeout   float64  `json:"timeout_ms"`
	Samples   int      `json:"samples"`
	Failures  int      `json:"consecutive_failures"`
	Open      bool     `json:"circuit_open"`
	OpenUntil *float64 `json:"open_until"`
	Opens     *int     `json:"opens_without_success"`
}

// different lists the scripts in which we do something else on purpose, with the reason. What is right is asserted in tests of its own.
var different = map[string]string{
	"new/server-side refusals": "refusals and a used-up quota count as failures there: TestRefusalsDoNotCount",
	"new/fast failures do not enter the window, slow ones do": "a lost connection enters the latency window there if it took over 80 % of the limit: " +
		"TestOnlyTimeoutsAreCensored",
	"old/opens at three, fails fast, half-open, re-opens": "the open time does not grow there",
	"old/back-off doubles to the cap, reset by success":   "the open time does not grow there, the new generation's script of the name is reproduced",
	"old/timeouts after convergence on a fast link":       "time-outs never enter the window there: the ratchet",
	"old/real latency rises from 2 to 9 ms":               "time-outs never enter the window there: the ratchet",
}

func load(t *testing.T) vectors {
	t.Helper()
	text, err := os.ReadFile("testdata/breaker.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func ms(x float64) time.Duration { return time.Duration(math.Round(x * 1e6)) }

// player replays a script: the retry loop of the reference around our breaker.
type player struct {
	t     *testing.T
	b     *breaker.Breaker
	now   time.Time
	tries int
}

func newPlayer(t *testing.T, v vectors, s script) *player {
	t.Helper()
	get := func(key string) float64 {
		if x, ok := s.Params[key]; ok {
			return x
		}
		return v.Defaults[key]
	}
	p := &player{t: t, now: time.Unix(0, 0), tries: 1 + int(get("grpc_retry_count"))}
	cfg := breaker.Config{
		Timeout: ms(get("grpc_timeout_ms")), Floor: ms(get("cb_min_timeout_ms")), Multiplier: get("cb_timeout_multiplier"),
		Window: int(get("cb_window_size")), MinSamples: 10, Failures: int(get("cb_max_consecutive_failures")),
		Open: ms(1000 * get("cb_recovery_window_s")), OpenMax: ms(1000 * get("cb_recovery_window_max_s")), ParityRank: true,
	}
	b, err := breaker.New(cfg, breaker.Deps{Now: func() time.Time { return p.now }})
	if err != nil {
		t.Fatal(err)
	}
	p.b = b
	return p
}

// call makes a call of several attempts and returns how it ended.
func (p *player) call(attempts []json.RawMessage) (result string, used int) {
	c, err := p.b.Begin()
	if err != nil {
		return "open", 0
	}
	for used = 0; used < p.tries; used++ {
		raw := json.RawMessage(`{"ms":1}`)
		if used < len(attempts) {
			raw = attempts[used]
		}
		if p.attempt(c, raw) {
			p.b.End(c, breaker.Success)
			return "ok", used + 1
		}
	}
	p.b.End(c, breaker.Failure)
	return "failed", used
}

// attempt reports whether an answer came.
func (p *player) attempt(c breaker.Call, raw json.RawMessage) bool {
	limit := p.b.Timeout(0)
	var a struct {
		MS      *float64
		Status  string
		AfterMS float64 `json:"after_ms"`
	}
	_ = json.Unmarshal(raw, &a) // "timeout" is no object
	switch {
	case a.Status != "":
		p.now = p.now.Add(ms(a.AfterMS))
		return false
	case a.MS == nil || ms(*a.MS) > limit:
		p.now = p.now.Add(limit)
		p.b.Sample(c, limit)
		return false
	}
	p.now = p.now.Add(ms(*a.MS))
	p.b.Sample(c, ms(*a.MS))
	return true
}

// play returns where we differ from the script.
func (p *player) play(s script) error {
	for i, e := range s.Events {
		switch {
		case e.AtS != nil:
			p.now = time.Unix(0, 0).Add(ms(1000 * *e.AtS))
		case e.Attempts == nil:
			p.now = p.now.Add(ms(1000 * e.AdvanceS))
		default:
			if result, used := p.call(e.Attempts); result != e.Result || used != e.Used {
				return fmt.Errorf("event %d: %s after %d attempts, want %s after %d", i, result, used, e.Result, e.Used)
			}
		}
		if err := p.compare(e.TimeS, e.State); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
	}
	return nil
}

func (p *player) compare(at float64, want state) error {
	start := time.Unix(0, 0)
	got := p.b.Status()
	open := got.State != breaker.Closed
	switch {
	case (p.now.Sub(start) - ms(1000*at)).Abs() > 1:
		return fmt.Errorf("the clock is at %v, want %v s", p.now.Sub(start), at)
	case (got.P99-ms(want.P99)).Abs() > 1 || (got.Timeout-ms(want.Timeout)).Abs() > 1 || got.Samples != want.Samples:
		return fmt.Errorf("p99 %v, timeout %v of %d samples, want %v ms, %v ms of %d", got.P99, got.Timeout, got.Samples, want.P99, want.Timeout, want.Samples)
	case got.Failures != want.Failures || open != want.Open || want.Opens != nil && got.Opens != *want.Opens:
		return fmt.Errorf("%d failures, open %v, %d opens, want %+v", got.Failures, open, got.Opens, want)
	case open && (got.Until.Sub(start)-ms(1000**want.OpenUntil)).Abs() > 1:
		return fmt.Errorf("open until %v, want %v s", got.Until, *want.OpenUntil)
	}
	return nil
}

// TestVectors replays all scripts. One that is listed as different must differ, so that the list hides nothing.
func TestVectors(t *testing.T) {
	v := load(t)
	listed := 0
	for _, s := range append(v.Cases, v.Defects...) {
		if s.Name == "" { // a remark without a script
			continue
		}
		t.Run(s.Generation+"/"+s.Name, func(t *testing.T) {
			err := newPlayer(t, v, s).play(s)
			switch reason := different[s.Generation+"/"+s.Name]; {
			case reason == "" && err != nil:
				t.Error(err)
			case reason != "":
				listed++
				if err == nil {
					t.Error("is listed as different and is not")
				}
			}
		})
	}
	if listed != len(different) {
		t.Errorf("%d scripts are listed as different, %d were found", len(different), listed)
	}
}

func TestPercentileIndex(t *testing.T) {
	v := load(t)
	for _, want := range v.Indices {
		for _, parity := range []bool{true, false} {
			cfg := breaker.DefaultConfig()
			cfg.Window, cfg.Floor, cfg.Timeout, cfg.ParityRank = 1000, 0, time.Hour, parity
			b, err := breaker.New(cfg, breaker.Deps{})
			if err != nil {
				t.Fatal(err)
			}
			c, _ := b.Begin()
			for i := range want.N {
				b.Sample(c, time.Duration(want.N-1-i)*time.Millisecond) // from the largest: the value is the index
			}
			right := time.Hour
			switch {
			case want.Index != nil && parity:
				right = time.Duration(*want.Index) * time.Millisecond
			case want.Index != nil: // nearest rank
				right = time.Duration(math.Ceil(0.99*float64(want.N))-1) * time.Millisecond
			}
			if got := b.Status().P99; got != right {
				t.Errorf("n %d, parity %v: p99 is the sample at %v, want %v", want.N, parity, got, right)
			}
		}
	}
}
