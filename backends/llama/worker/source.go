package worker

import (
	"context"

	"qr-gateway/entropy"
	"qr-gateway/sampler"
)

// Bytes lends an entropy source to the sampler.
type Bytes struct{ Source entropy.Source }

// Fill implements sampler.ByteSource.
func (b Bytes) Fill(ctx context.Context, buf []byte) (sampler.Block, error) {
	d, err := b.Source.Draw(ctx, buf)
	if err != nil {
		return sampler.Block{}, err
	}
	return sampler.Block{
		Source: d.Source, Device: d.Device, Requested: d.Requested, Arrived: d.Arrived, ServerTime: d.ServerTime,
		Sequence: d.Sequence, Echoed: d.Echoed, Class: string(d.Class), Shots: d.Shots, Fallback: d.Fallback,
	}, nil
}
