package hub

import (
	"context"
	"fmt"
	"sync"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
)

// maxBaseline is how many bytes of a source a calibration that a request asks for may take.
const maxBaseline = 256 << 20

// Baselines are the calibrations that requests have asked for: each source is measured once for each size, and what was measured is kept. The
// zero value is ready for use, by many at once.
type Baselines struct {
	mu   sync.Mutex // guards made
	made map[question]*baseline
}

// baseline is one calibration, made or in the making.
type baseline struct {
	turn chan struct{} // one slot: held by who measures, or has a look
	done *guard.Calibration
}

// Of returns the calibration of src, called name, and makes it where it has not been made. Those that ask at the same time wait for the one
// that measures. Errors are those of draws, or say that what is asked for can't be measured.
func (b *Baselines) Of(ctx context.Context, name string, src entropy.Source, ask Blocks) (*guard.Calibration, error) {
	if ask.Bytes < 1 || ask.Count > maxBaseline/ask.Bytes {
		return nil, &entropy.Error{
			Kind: entropy.KindConfig, Source: name, Hint: "ask for fewer or smaller blocks",
			Message: fmt.Sprintf("a calibration of %d blocks of %d bytes was asked for; it takes up to %d bytes in all", ask.Count, ask.Bytes, maxBaseline),
		}
	}
	m := b.find(question{name, ask})
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if m.done != nil {
		return m.done, nil
	}
	c, err := measure(ctx, name, src, ask)
	if err != nil {
		return nil, err
	}
	m.done = c
	return c, nil
}

func (b *Baselines) find(q question) *baseline {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made == nil {
		b.made = map[question]*baseline{}
	}
	if b.made[q] == nil {
		b.made[q] = &baseline{turn: make(chan struct{}, 1)}
	}
	return b.made[q]
}

// measure draws the blocks. A block of a second choice says nothing about the source.
func measure(ctx context.Context, name string, src entropy.Source, ask Blocks) (*guard.Calibration, error) {
	buf, sums, device := make([]byte, ask.Bytes), make([]uint64, 0, ask.Count), ""
	for range ask.Count {
		b, err := src.Draw(ctx, buf)
		if err != nil {
			return nil, fmt.Errorf("calibrate %s: %w", name, err)
		}
		if b.Fallback {
			return nil, &entropy.Error{
				Kind: entropy.KindTransport, Source: name, Message: "it can't be calibrated while " + b.Source + " serves in its place",
				Hint: "try again when it is back",
			}
		}
		var sum uint64
		for _, v := range buf {
			sum += uint64(v)
		}
		sums, device = append(sums, sum), b.Device
	}
	c, err := guard.NewCalibration(name, device, time.Now(), ask.Bytes, sums)
	if err != nil {
		return nil, &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "calibrate source", Err: err}
	}
	return c, nil
}
