package guard

import (
	"testing"

	"qr-gateway/entropy/local"
)

// BenchmarkDraw is what a guard costs over the system's generator at 20,480 bytes; the difference of the two is the tests'.
func BenchmarkDraw(b *testing.B) {
	src, buf := local.NewSystem(), make([]byte, 20480)
	g, err := New("system", src, DefaultConfig(), Deps{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("bare", func(b *testing.B) {
		b.SetBytes(int64(len(buf)))
		for b.Loop() {
			if _, err := src.Draw(b.Context(), buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("guarded", func(b *testing.B) {
		b.SetBytes(int64(len(buf)))
		for b.Loop() {
			if _, err := g.Draw(b.Context(), buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}
