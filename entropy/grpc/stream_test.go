package grpc_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc"
	"qr-gateway/entropy/server"
)

// TestGrowingDraws: the limit of a message grows with what is asked for, on another stream if need be, beside draws that are under way.
func TestGrowingDraws(t *testing.T) {
	s := open(t, serve(t, sealed{system(t)}, func(c *server.Config) { c.MaxBytes = 8 << 20 }), nil)
	var group sync.WaitGroup
	for _, n := range []int{64, 300_000, 100, 5 << 20, 20480} {
		group.Go(func() {
			for range 5 {
				b, err := s.Draw(t.Context(), make([]byte, n))
				if err == nil {
					err = checkSealed(b)
				}
				if err != nil {
					t.Errorf("%d bytes: %v", n, err)
				}
			}
		})
	}
	group.Wait()
	_, err := s.Draw(t.Context(), make([]byte, 9<<20))
	wantKind(t, err, entropy.KindRefused, "it must lie between 1 and")
}

// TestSecondAnswer: one that came twice ends the stream; nothing is read from it any more.
func TestSecondAnswer(t *testing.T) {
	var streams atomic.Int32
	left := make(chan struct{})
	address := scripted(t, func(e exchange) error {
		first := streams.Add(1) == 1
		for {
			n, seq, more := e.next()
			if !more {
				return nil
			}
			e.reply(n, byte(seq), seq)
			if first {
				e.reply(n, 99, seq)
				<-e.Context().Done()
				close(left)
				return nil
			}
		}
	})
	s := open(t, address, nil)
	if b, err := s.Draw(t.Context(), make([]byte, 8)); err != nil || b.Bytes[0] != 1 {
		t.Fatalf("%v, %v", b.Bytes, err)
	}
	<-left
	if b, err := s.Draw(t.Context(), make([]byte, 8)); err != nil || b.Bytes[0] != byte(b.Sequence) || streams.Load() != 2 {
		t.Errorf("%v, %v, %d streams", b.Bytes, err, streams.Load())
	}
}

// TestServerEndsStream: that happens between draws and under one; it is no failure of a draw that may be asked again.
func TestServerEndsStream(t *testing.T) {
	var asked atomic.Int32
	address := scripted(t, func(e exchange) error {
		n, seq, _ := e.next()
		if asked.Add(1)%2 == 0 {
			return nil
		}
		e.reply(n, byte(seq), seq)
		return nil
	})
	s := open(t, address, nil)
	for range 20 {
		if b, err := s.Draw(t.Context(), make([]byte, 8)); err != nil || b.Bytes[0] != byte(b.Sequence) {
			t.Fatalf("%v, %v", b.Bytes, err)
		}
	}
}

// TestQuotaHint: the server says for how long its quota is used up.
func TestQuotaHint(t *testing.T) {
	address := scripted(t, func(exchange) error {
		st, err := status.New(codes.ResourceExhausted, "wait").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(42 * time.Second)})
		if err != nil {
			return err
		}
		return st.Err()
	})
	now := time.Unix(1_000_000, 0)
	s := openWith(t, address, grpc.Deps{Now: func() time.Time { return now }}, nil)
	_, err := s.Draw(t.Context(), make([]byte, 8))
	wantKind(t, err, entropy.KindQuota, "wait")
	_, err = s.Draw(t.Context(), make([]byte, 8))
	wantKind(t, err, entropy.KindQuota, "not asked")
	if e := err.(*entropy.Error); !strings.Contains(e.Hint, "42s") { //nolint:errorlint // it is this very error
		t.Errorf("hint %q", e.Hint)
	}
	now = now.Add(42 * time.Second)
	_, err = s.Draw(t.Context(), make([]byte, 8))
	wantKind(t, err, entropy.KindQuota, "wait")
}

// TestSecret: a key shows itself nowhere.
func TestSecret(t *testing.T) {
	key := grpc.Secret("s3cret")
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", key)
	text, err := json.Marshal(map[string]any{"key": key})
	if err != nil {
		t.Fatal(err)
	}
	all := log.String() + string(text) + fmt.Sprint(key) + fmt.Sprintf("%#v %q", key, key)
	if strings.Contains(all, "s3cret") || !strings.Contains(all, "(set)") || grpc.Secret("").String() != "" {
		t.Errorf("shown: %s", all)
	}
}
