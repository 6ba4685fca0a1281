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
	s := &System{reader: iotest.ErrReader(boom), now: time.Now}
	if b, err := s.Draw(t.Context(), make([]byte, 4)); !errors.Is(err, boom) || b.Bytes != nil {
		t.Errorf("got %+v, error %v", b, err)
	}
}

func TestSystemAllocatesNothing(t *testing.T) {
	s, buf, ctx := NewSystem(), make([]byte, 20480), t.Context()
	n := testing.AllocsPerRun(10, func() {
		if _, err := s.Draw(ctx, buf); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a draw", n)
	}
}
