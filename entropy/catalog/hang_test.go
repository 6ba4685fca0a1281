package catalog

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
)

// silent never answers.
type silent struct{}

func (silent) Draw(ctx context.Context, _ []byte) (entropy.Block, error) {
	<-ctx.Done()
	return entropy.Block{}, ctx.Err()
}

// planOf is a plan for a source that a test makes.
func planOf(name string, open func(context.Context) (entropy.Source, error)) planned {
	k := Kind{Type: "test", Open: func(ctx context.Context, _ string, _ map[string]any, _ Deps) (entropy.Source, error) {
		return open(ctx)
	}}
	return planned{spec: Spec{Name: name, Type: "test"}, kind: k, guard: guard.DefaultConfig()}
}

// TestHangingSourcesAreBounded: one that never opens and ones that never answer hold the start up at the same time, and no longer than
// they may.
func TestHangingSourcesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deps := Deps{StartTimeout: 5 * time.Second}
		s := &Set{all: map[string]member{}}
		hangs := planOf("hangs", func(ctx context.Context) (entropy.Source, error) { <-ctx.Done(); return nil, ctx.Err() })
		mute := func(context.Context) (entropy.Source, error) { return silent{}, nil }
		began := time.Now()
		err := s.openAll(t.Context(), []planned{hangs, planOf("mute", mute), planOf("mute2", mute)}, deps)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if e, ok := errors.AsType[*entropy.Error](err); !ok || e.Source != "hangs" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		for _, st := range s.States() {
			if st.Mode != guard.ModeAlarmed || st.Errors["timeout"] != 1 {
				t.Errorf("%+v", st)
			}
		}
		if len(s.Names()) != 2 {
			t.Errorf("open are %v", s.Names())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSlowProgramsMayStart: a program has the time that its own option gives it, however short the start of others is.
func TestSlowProgramsMayStart(t *testing.T) {
	slow := Spec{Name: "slow", Type: "exec", Options: opts{"command": []string{"/bin/sh", "-c", "sleep 0.3"}}}
	_, err := Open(t.Context(), []Spec{slow}, Deps{StartTimeout: 20 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "ended before its hello") {
		t.Errorf("got %v", err)
	}
	slow.Options["start_timeout"] = "50ms"
	if _, err = Open(t.Context(), []Spec{slow}, Deps{StartTimeout: 20 * time.Millisecond}); err == nil || !strings.Contains(err.Error(), "within 50ms") {
		t.Errorf("got %v", err)
	}
}
