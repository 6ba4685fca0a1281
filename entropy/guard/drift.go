package guard

import (
	"math"

	"qr-gateway/entropy"
)

const (
	driftWeight = 1.0 / 64 // of the newest block in the moving mean of z
	driftLimit  = 5.0      // standard deviations
)

// drift is the moving mean of the z-scores of blocks against the baseline.
type drift struct {
	mean   float64
	blocks int
}

// againstBaseline compares the source's own bytes with its baseline; mu is held.
func (g *Guard) againstBaseline(buf []byte, b *entropy.Block) entropy.Flags {
	c := g.baseline.Load()
	switch {
	case c == nil || len(buf) == 0:
		return 0
	case c.fits(b.Device) != nil:
		return entropy.FlagOtherDevice
	}
	return g.driftOf(c, buf)
}

// driftOf flags a byte mean that moves away from the baseline. Nothing acts on it; mu is held.
func (g *Guard) driftOf(c *Calibration, buf []byte) entropy.Flags {
	n := float64(len(buf))
	z := (float64(sum(buf))/n - c.Mean) / (c.Std / math.Sqrt(n))
	g.drift.mean += driftWeight * (z - g.drift.mean)
	g.drift.blocks++
	if g.drift.blocks < 64 {
		return 0
	}
	// The baseline's own error shifts every z of this size alike.
	own := c.MeanError / (c.Std / math.Sqrt(n))
	if math.Abs(g.drift.mean) > driftLimit*math.Sqrt(driftWeight/(2-driftWeight)+own*own) {
		return entropy.FlagDrift
	}
	return 0
}
