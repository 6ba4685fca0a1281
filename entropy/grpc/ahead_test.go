package grpc_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc"
	"qr-gateway/entropy/grpc/breaker"
)

func TestAhead(t *testing.T) {
	address := serve(t, sealed{system(t)}, nil)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			s := open(t, address, inMode(mode))
			if mode == grpc.ModeBidi && s.Begin(64, 1) != nil {
				t.Error("a request is sent ahead before there is a stream")
			}
			if _, err := s.Draw(t.Context(), make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				nonce := rand.Uint64()>>1 | 1
				ticket := s.Begin(64, nonce)
				if ticket == nil {
					t.Fatal("nothing is sent ahead")
				}
				b, err := ticket.Redeem(t.Context(), make([]byte, 64))
				if err != nil {
					t.Fatal(err)
				}
				if err := checkSealed(b); err != nil || !b.Pipelined || b.Nonce != nonce || !b.Echoed || b.Source != "remote" {
					t.Errorf("%v, %+v", err, b)
				}
			}
		})
	}
}

func TestAheadIsRefused(t *testing.T) {
	address := serve(t, system(t), nil)
	for name, c := range map[string]struct {
		n      int
		nonce  uint64
		change func(*grpc.Config)
	}{
		"nothing asked":      {0, 1, nil},
		"no nonce":           {8, 0, nil},
		"nonce of 64 bits":   {8, math.MaxUint64, nil},
		"no echo":            {8, 1, func(c *grpc.Config) { c.Echo = grpc.EchoNone }},
		"several requests":   {9, 1, func(c *grpc.Config) { c.MaxDraw = 8 }},
		"larger than stream": {1 << 20, 1, nil},
	} {
		s := open(t, address, c.change)
		if _, err := s.Draw(t.Context(), make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		if s.Begin(c.n, c.nonce) != nil {
			t.Errorf("%s: a ticket", name)
		}
	}
	s := open(t, address, inMode(grpc.ModeUnary))
	s.Force(breaker.ForceOpen)
	if s.Begin(8, 1) != nil {
		t.Error("a ticket while the breaker is open")
	}
	s.Close()
	if s.Begin(8, 1) != nil {
		t.Error("a ticket after Close")
	}
}

// TestTickets: those that are dropped, redeemed late or wrongly give back what they hold.
func TestTickets(t *testing.T) {
	silent := make(chan struct{})
	address := scripted(t, func(e exchange) error {
		for {
			n, seq, more := e.next()
			if !more {
				return nil
			}
			if seq == 1000 {
				close(silent)
				continue
			}
			e.reply(n, byte(seq), seq)
		}
	})
	s := open(t, address, func(c *grpc.Config) { quick(c); c.MaxInFlight = 1 })
	if _, err := s.Draw(t.Context(), make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		ticket := s.Begin(8, uint64(100+i))
		if ticket == nil {
			t.Fatalf("ticket %d is refused: something was not given back", i)
		}
		if s.Begin(8, 99) != nil {
			t.Fatal("more is under way than allowed")
		}
		switch i {
		case 0:
			ticket.Drop()
		case 1:
			_, err := ticket.Redeem(t.Context(), make([]byte, 9))
			wantKind(t, err, entropy.KindConfig, "8 bytes were asked for")
		case 2:
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := ticket.Redeem(ctx, make([]byte, 8)); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		default:
			if b, err := ticket.Redeem(t.Context(), make([]byte, 8)); err != nil || b.Bytes[0] != byte(100+i) {
				t.Errorf("%v, %v", b, err)
			}
		}
	}
	ticket := s.Begin(8, 1000)
	<-silent
	_, err := ticket.Redeem(t.Context(), make([]byte, 8))
	wantKind(t, err, entropy.KindTimeout, "in time")
	if b, err := s.Draw(t.Context(), make([]byte, 8)); err != nil || b.Bytes[0] == 0 {
		t.Errorf("a draw after a late ticket: %v, %v", b, err)
	}
}
