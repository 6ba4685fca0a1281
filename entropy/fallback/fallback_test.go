package fallback

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropytest"
	"qr-gateway/entropy/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broken fails every draw.
type broken struct{ kind entropy.Kind }

func (b broken) Draw(ctx context.Context, _ []byte) (entropy.Block, error) {
	if ctx.Err() != nil {
		return entropy.Block{}, ctx.Err()
	}
	return entropy.Block{}, &entropy.Error{Kind: b.kind, Source: "broken", Message: "scripted " + string(b.kind)}
}

func compose(t *testing.T, members ...entropy.Source) *Source {
	t.Helper()
	names := []string{"a", "b", "c"}[:len(members)]
	s, err := New("chain", Config{Sources: names}, members)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	entropytest.Run(t, func(t *testing.T) entropy.Source { return compose(t, local.NewSystem(), local.NewSystem()) })
}

func TestOrder(t *testing.T) {
	system := local.NewSystem()
	for name, row := range map[string]struct {
		members []entropy.Source
		second  bool
	}{
		"first":  {[]entropy.Source{system, broken{}}, false},
		"second": {[]entropy.Source{broken{entropy.KindTimeout}, system}, true},
		"third":  {[]entropy.Source{broken{entropy.KindTimeout}, broken{entropy.KindQuota}, system}, true},
	} {
		b, err := compose(t, row.members...).Draw(t.Context(), make([]byte, 16))
		if err != nil || b.Fallback != row.second || b.Source != "system" {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
	}
}

func TestAllFail(t *testing.T) {
	open := func(t *testing.T) entropy.Source {
		return compose(t, broken{entropy.KindTimeout}, broken{entropy.KindQuota})
	}
	entropytest.RunFailing(t, entropy.KindTimeout, open)
	_, err := open(t).Draw(t.Context(), make([]byte, 1))
	for _, want := range []string{"scripted timeout", "scripted quota"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open(t).Draw(ctx, make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestRefused(t *testing.T) {
	two := []entropy.Source{broken{}, broken{}}
	for name, row := range map[string]struct {
		names   []string
		members []entropy.Source
	}{
		"one":     {[]string{"a"}, two[:1]},
		"twice":   {[]string{"a", "a"}, two},
		"many":    {make([]string, MaxSources+1), two},
		"missing": {[]string{"a", "b"}, two[:1]},
	} {
		if _, err := New("chain", Config{row.names}, row.members); entropy.KindOf(err) != entropy.KindConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
}
