package grpc_test

import (
	"testing"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/catalog"
	"qr-gateway/entropy/grpc"
)

// TestOptions: a source as configurations name it, with the options of the schema and the breaker.
func TestOptions(t *testing.T) {
	address := serve(t, system(t), nil)
	w := newWatcher()
	set, err := catalog.Open(t.Context(), []catalog.Spec{{Name: "lab", Type: "quantum_grpc", Options: map[string]any{
		"address": address, "mode": "bidi", "timeout": "250ms", "breaker_failures": 5, "field_data": "1", "max_draw": 16384, "expect_device": "crypto/rand",
	}}}, catalog.Deps{Requests: w})
	if err != nil {
		t.Fatal(err)
	}
	src, err := set.Get("lab")
	if err != nil {
		t.Fatal(err)
	}
	b, err := src.Draw(t.Context(), make([]byte, 20480))
	if err != nil || b.Shots != 2 || !b.Echoed || b.Source != "lab" {
		t.Errorf("%+v, %v", b, err)
	}
	if _, ok := src.(entropy.Numberer); !ok {
		t.Error("the guarded source makes no numbers")
	}
	if _, ok := src.(entropy.Ahead); !ok {
		t.Error("the guarded source can't be asked ahead")
	}
	if err := set.Close(); err != nil {
		t.Error(err)
	}
	if w.reports[""] == 0 {
		t.Error("no request was reported")
	}
}

// TestSlowDevice: a rate raises the least time, and one that can't be met is refused.
func TestSlowDevice(t *testing.T) {
	s := open(t, serve(t, system(t), nil), func(c *grpc.Config) { c.Rate, c.Breaker.Timeout = 50_000, time.Second })
	if _, err := s.Draw(t.Context(), make([]byte, 20480)); err != nil {
		t.Error(err)
	}
	_, err := s.Draw(t.Context(), make([]byte, 40960))
	wantKind(t, err, entropy.KindConfig, "longer than timeout 1s")
}

// TestRecovery: when a server that was killed or frozen is back, draws succeed within a second.
func TestRecovery(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	for name, outage := range map[string]func(p *process) (back func() *process){
		"killed": func(p *process) func() *process {
			_ = p.cmd.Process.Kill()
			return func() *process { return spawn(t, p.address) }
		},
		"frozen": func(p *process) func() *process {
			p.signal(sigStop)
			return func() *process { p.signal(sigCont); return p }
		},
	} {
		p := spawn(t, socket(t))
		w := newWatcher()
		s := openWith(t, p.address, grpc.Deps{Observer: w}, func(c *grpc.Config) {
			c.Breaker.Floor, c.Breaker.Timeout, c.Breaker.Open, c.Retries = 20*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond, 0
		})
		if _, err := s.Draw(t.Context(), make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		back := outage(p)
		for open := false; !open; { // a draw or two may succeed before the signal has arrived
			_, err := s.Draw(t.Context(), make([]byte, 64))
			open = entropy.KindOf(err) == entropy.KindOpen
		}
		back()
		began := time.Now()
		for {
			b, err := s.Draw(t.Context(), make([]byte, 64))
			if err == nil {
				if err := checkSealed(b); err != nil {
					t.Error(err)
				}
				break
			}
			<-time.After(time.Millisecond)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: usable %v after it is back", name, took)
		} else {
			t.Logf("%s: usable %v after it is back", name, took.Round(time.Millisecond))
		}
	}
}
