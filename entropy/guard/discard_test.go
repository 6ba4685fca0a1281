package guard

import (
	"context"
	"testing"
	"time"

	"qr-gateway/entropy"
)

// TestDiscardedBlocksAreTold: a block that came and was not used shows on the one that took its place; a draw that brought nothing does not.
func TestDiscardedBlocksAreTold(t *testing.T) {
	for name, row := range map[string]struct {
		bad  spoil
		want int
	}{
		"good":    {nil, 0},
		"stuck":   {stuck, 1},
		"timeout": {failing(entropy.KindTimeout), 0},
		"short":   {func(_ context.Context, _ []byte, b *entropy.Block) error { b.Bytes = b.Bytes[1:]; return nil }, 1},
	} {
		r := newRig(t, func(c *Config) { c.Policy = Fallback })
		r.src.set(row.bad)
		if b, err := r.draw(t, 64); err != nil || b.Discarded != row.want || b.Fallback != (row.bad != nil) {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
		if b, err := r.draw(t, 64); err != nil || b.Discarded != 0 && name != "short" {
			t.Errorf("%s, the next: %+v, %v", name, b, err)
		}
		r = newRig(t, nil)
		r.src.set(row.bad)
		if b, _ := r.draw(t, 64); b.Discarded != row.want {
			t.Errorf("%s, strict: %+v", name, b)
		}
	}
}

func TestDiscardedNumbersAreTold(t *testing.T) {
	c := newClock()
	a := &able{script: newScript(c), number: func() (entropy.Number, error) {
		now := c.Now()
		return entropy.Number{U: 2, Block: entropy.Block{Source: "able", Requested: now, Arrived: now.Add(time.Millisecond)}}, nil
	}}
	_, s := guarded(t, a, c, func(cfg *Config) { cfg.Policy = Fallback })
	if n, err := s.(entropy.Numberer).Number(t.Context(), entropy.NumberRequest{}); err != nil || !n.Block.Fallback || n.Block.Discarded != 1 {
		t.Errorf("%+v, %v", n, err)
	}
}
