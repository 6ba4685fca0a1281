package local

import (
	"errors"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSystem(t *testing.T) {
	entropytest.Run(t, func(*testing.T) entropy.Source { return NewSystem() })
}

func TestSystemFails(t *testing.T) {
	boom := errors.New("boom")
	open := func(*testing.T) entropy.Source {
		return &System{name: "system", reader: iotest.ErrReader(boom), now: time.Now}
	}
	entropytest.RunFailing(t, entropy.KindTransport, open)
	if _, err := open(t).Draw(t.Context(), make([]byte, 4)); !errors.Is(err, boom) {
		t.Errorf("the cause is lost: %v", err)
	}
}

func TestDrawsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	timing, err := OpenTiming(t.Context(), "timing", lenient())
	if err != nil {
		t.Skip(err)
	}
	mock, err := OpenMock(t.Context(), "mock", MockConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []entropy.Source{NewSystem(), mock, timing} {
		buf, ctx := make([]byte, 20480), t.Context()
		n := testing.AllocsPerRun(5, func() {
			if _, err := s.Draw(ctx, buf); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%T: %v allocations a draw", s, n)
		}
	}
}
