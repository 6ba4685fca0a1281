package breaker_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"qr-gateway/entropy/grpc/breaker"
)

// model is the breaker written as plainly as it goes: calls carry the epoch they began in, and everything is recomputed.
type model struct {
	cfg     breaker.Config
	now     time.Time
	state   breaker.State
	epoch   int
	fails   int
	opens   int
	until   time.Time
	trying  bool
	samples []time.Duration
}

type modelCall struct {
	call  breaker.Call
	epoch int
	trial bool
}

func (m *model) to(s breaker.State) { m.state, m.trying, m.epoch = s, false, m.epoch+1 }

func (m *model) begin() (trial, ok bool) {
	if m.state == breaker.Open && !m.now.Before(m.until) {
		m.to(breaker.HalfOpen)
	}
	switch {
	case m.state == breaker.Closed:
		return false, true
	case m.state == breaker.Open || m.trying:
		return false, false
	}
	m.trying = true
	return true, true
}

func (m *model) end(c modelCall, o breaker.Outcome) {
	if c.epoch != m.epoch {
		return
	}
	if c.trial {
		m.trying = false
	}
	switch o {
	case breaker.Success:
		m.fails, m.opens = 0, 0
		if m.state == breaker.HalfOpen {
			m.to(breaker.Closed)
		}
	case breaker.Failure:
		m.fails++
		if m.state == breaker.HalfOpen || m.fails >= m.cfg.Failures {
			m.opens++
			m.until = m.now.Add(min(m.cfg.Open<<min(m.opens-1, 20), m.cfg.OpenMax))
			m.to(breaker.Open)
		}
	case breaker.Excluded:
	}
}

func (m *model) timeout() time.Duration {
	last := slices.Clone(m.samples[max(0, len(m.samples)-m.cfg.Window):])
	p99 := m.cfg.Timeout
	if n := len(last); n >= m.cfg.MinSamples {
		slices.Sort(last)
		p99 = last[(99*n+99)/100-1]
	}
	return min(max(time.Duration(float64(p99)*m.cfg.Multiplier), m.cfg.Floor), m.cfg.Timeout)
}

// TestModel drives breaker and model alike and compares them after each step.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{state: breaker.Closed, now: time.Unix(0, 0), cfg: breaker.Config{
			Timeout: time.Second, Floor: 10 * time.Millisecond, Multiplier: 1.5, MinSamples: 3, Open: time.Second, OpenMax: 7 * time.Second,
			Window: rapid.IntRange(1, 8).Draw(t, "window"), Failures: rapid.IntRange(1, 4).Draw(t, "failures"),
		}}
		last := breaker.Closed
		b, err := breaker.New(m.cfg, breaker.Deps{Now: func() time.Time { return m.now }, Changed: func(e breaker.Event) {
			if e.From != last {
				t.Fatalf("event from %s follows one to %s", e.From, last)
			}
			last = e.To
		}})
		if err != nil {
			t.Fatal(err)
		}
		var calls []modelCall
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond)
			},
			"begin": func(t *rapid.T) {
				trial, ok := m.begin()
				c, err := b.Begin()
				if (err == nil) != ok || c.Trial != trial {
					t.Fatalf("begin: %+v, %v; the model says %v, trial %v", c, err, ok, trial)
				}
				if ok {
					calls = append(calls, modelCall{c, m.epoch, trial})
				}
			},
			"sample": func(t *rapid.T) {
				if len(calls) == 0 {
					t.Skip()
				}
				c := calls[rapid.IntRange(0, len(calls)-1).Draw(t, "call")]
				took := time.Duration(rapid.IntRange(1, 900).Draw(t, "ms")) * time.Millisecond
				b.Sample(c.call, took)
				if c.epoch == m.epoch {
					m.samples = append(m.samples, took)
				}
			},
			"end": func(t *rapid.T) {
				if len(calls) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(calls)-1).Draw(t, "call")
				o := rapid.SampledFrom([]breaker.Outcome{breaker.Success, breaker.Failure, breaker.Failure, breaker.Excluded}).Draw(t, "outcome")
				b.End(calls[i].call, o)
				m.end(calls[i], o)
				calls = slices.Delete(calls, i, i+1)
			},
			"": func(t *rapid.T) {
				s := b.Status()
				if s.State != m.state || s.Failures != m.fails || s.Opens != m.opens || s.Timeout != m.timeout() || s.State == breaker.Open && !s.Until.Equal(m.until) {
					t.Fatalf("%+v differs from the model %+v, timeout %v", s, m, m.timeout())
				}
			},
		})
	})
}
