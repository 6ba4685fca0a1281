package sources_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"qr-gateway/entropy"
	"qr-gateway/entropy/catalog"
	"qr-gateway/entropy/guard"
	"qr-gateway/entropy/hub"
	"qr-gateway/gateway"
	"qr-gateway/gateway/sources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens sources that are served until the test ends. The log is read when it has.
func open(t *testing.T, cfg sources.Config) (*sources.Sources, *hub.Client, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	s, err := sources.Open(t.Context(), cfg, sources.Deps{Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	run(t, s.Run)
	c := hub.DefaultClientConfig()
	c.Socket = s.Socket()
	client, err := hub.NewClient(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	run(t, client.Run)
	return s, client, log
}

func run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// recorded is a file of n bytes: a replay of it has so many and no more.
func recorded(t *testing.T, n int) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bytes")
	data := make([]byte, n)
	x := uint32(1)
	for i := range data {
		x = 1664525*x + 1013904223
		data[i] = byte(x >> 24)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// short is a source that ends after one block of 16 bytes.
func short(t *testing.T, name, policy, fallback string) catalog.Spec {
	t.Helper()
	return catalog.Spec{
		Name: name, Type: "replay", Policy: policy, Fallback: fallback,
		Options: map[string]any{"path": recorded(t, 16)},
	}
}

func drawn(t *testing.T, c *hub.Client, name string) (entropy.Block, error) {
	t.Helper()
	src, err := c.Source(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return src.Draw(t.Context(), make([]byte, 16))
}

func stateOf(t *testing.T, s *sources.Sources, name string) gateway.SourceState {
	t.Helper()
	for _, st := range s.States() {
		if st.Source == name {
			return st
		}
	}
	t.Fatalf("no state of %s", name)
	return gateway.SourceState{}
}

func TestPoliciesThroughTheHub(t *testing.T) {
	s, client, log := open(t, sources.Config{
		Specs: []catalog.Spec{short(t, "hard", "strict", ""), short(t, "soft", "fallback", "system")}, Default: "soft",
	})
	for _, name := range []string{"hard", "soft"} {
		if b, err := drawn(t, client, name); err != nil || b.Fallback || b.Source != name {
			t.Errorf("%s, while it lasts: %+v, %v", name, b, err)
		}
		if st := stateOf(t, s, name); st.Degraded || st.LastUsed != name || st.Draws == 0 {
			t.Errorf("%s, while it lasts: %+v", name, st)
		}
	}
	for range 3 {
		if _, err := drawn(t, client, "hard"); entropy.KindOf(err) == "" {
			t.Errorf("hard: %v", err)
		}
		if b, err := drawn(t, client, "soft"); err != nil || !b.Fallback || b.Source != "system" {
			t.Errorf("soft: %+v, %v", b, err)
		}
	}
	if st := stateOf(t, s, "soft"); !st.Degraded || st.LastUsed != "system" || st.Changed.IsZero() || len(st.Fallbacks) == 0 {
		t.Errorf("soft: %+v", st)
	}
	if st := stateOf(t, s, "hard"); !st.Degraded || st.LastError == "" {
		t.Errorf("hard: %+v", st)
	}
	if n := strings.Count(log.String(), "entropy.degraded"); n != 2 {
		t.Errorf("%d lines for two outages:\n%s", n, log)
	}
	if st := stateOf(t, s, "system"); st.LastUsed != "system" || s.Default() != "soft" {
		t.Errorf("system: %+v", st)
	}
}

func TestNamesThatMayBeAskedFor(t *testing.T) {
	s, _, _ := open(t, sources.Config{Specs: []catalog.Spec{{Name: "m", Type: "mock"}}, Allow: []string{"m"}, Default: "m"})
	if got := strings.Join(s.Names(), " "); got != "m" {
		t.Errorf("got %q", got)
	}
	all, _, _ := open(t, sources.Config{Specs: []catalog.Spec{{Name: "m", Type: "mock"}}})
	if got := strings.Join(all.Names(), " "); got != "m system" || all.Default() != "system" {
		t.Errorf("got %q, default %q", got, all.Default())
	}
}

func TestDescribe(t *testing.T) {
	_, client, _ := open(t, sources.Config{Specs: []catalog.Spec{
		{Name: "plain", Type: "mock"},
		{Name: "based", Type: "mock", Options: map[string]any{"calibration_blocks": 32, "calibration_block_bytes": 64}},
	}})
	describe := func(name string, ask hub.Blocks) *guard.Calibration {
		d, err := client.Describe(t.Context(), name, ask)
		if err != nil || d.Type != "mock" || d.Policy != "strict" || d.Can.Number {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		return d.Calibration
	}
	if c := describe("plain", hub.Blocks{}); c != nil {
		t.Errorf("a calibration that nobody asked for: %+v", c)
	}
	if c := describe("plain", hub.Blocks{Count: 20, Bytes: 100}); c == nil || len(c.Sums) != 20 || c.BlockBytes != 100 {
		t.Errorf("measured: %+v", c)
	}
	frozen := describe("based", hub.Blocks{})
	if frozen == nil || len(frozen.Sums) != 32 {
		t.Fatalf("frozen: %+v", frozen)
	}
	if c := describe("based", hub.Blocks{Count: 16, Bytes: 64}); c == nil || c.Hash != frozen.Hash {
		t.Errorf("the frozen baseline has enough blocks, but another was made: %+v", c)
	}
	if c := describe("based", hub.Blocks{Count: 16, Bytes: 100}); c == nil || c.BlockBytes != 100 {
		t.Errorf("other blocks: %+v", c)
	}
	for _, ask := range []hub.Blocks{{Count: 1, Bytes: 10}, {Count: 1 << 30, Bytes: 1 << 20}, {Count: 20}} {
		if _, err := client.Describe(t.Context(), "plain", ask); entropy.KindOf(err) != entropy.KindConfig {
			t.Errorf("%+v: %v", ask, err)
		}
	}
}

// TestAlarmedSourceIsKnownToRefuse, until it may be tested again.
func TestAlarmedSourceIsKnownToRefuse(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	var mu sync.Mutex // guards at
	now := func() time.Time { mu.Lock(); defer mu.Unlock(); return at }
	stuck := func(name, policy, second string) catalog.Spec {
		return catalog.Spec{Name: name, Type: "mock_biased", Policy: policy, Fallback: second, Options: map[string]any{"fault": "stuck"}}
	}
	s, err := sources.Open(t.Context(), sources.Config{Specs: []catalog.Spec{stuck("hard", "strict", ""), stuck("soft", "fallback", "system")}},
		sources.Deps{Log: slog.New(slog.DiscardHandler), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, name := range []string{"hard", "soft"} {
		src, _ := s.Source(name)
		_, _ = src.Draw(t.Context(), make([]byte, 1000))
	}
	if err := s.Refusal("hard"); entropy.KindOf(err) != entropy.KindHealth {
		t.Errorf("hard: %v", err)
	}
	for _, name := range []string{"soft", "system"} {
		if err := s.Refusal(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	mu.Lock()
	at = at.Add(2 * time.Hour)
	mu.Unlock()
	if err := s.Refusal("hard"); err != nil {
		t.Errorf("hard, when it may be tested again: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, cfg := range map[string]sources.Config{
		"type":    {Specs: []catalog.Spec{{Name: "a", Type: "none_such"}}},
		"option":  {Specs: []catalog.Spec{{Name: "a", Type: "mock", Options: map[string]any{"sed": 1}}}},
		"default": {Default: "a"},
		"file":    {Specs: []catalog.Spec{{Name: "a", Type: "replay", Options: map[string]any{"path": "/nonexistent"}}}},
	} {
		s, err := sources.Open(t.Context(), cfg, sources.Deps{Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			t.Errorf("%s: it was opened", name)
			_ = s.Close()
		} else if !strings.Contains(err.Error(), "a") {
			t.Errorf("%s: %v does not name the source", name, err)
		}
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	s, err := sources.Open(t.Context(), sources.Config{}, sources.Deps{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	socket := s.Socket()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(socket)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's folder is left: %v", err)
	}
}
