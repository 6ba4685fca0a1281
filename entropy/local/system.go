// Package local has the sources that need nothing but this machine. They hold no connection and may be shared by goroutines.
package local

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"qr-gateway/entropy"
)

// SystemName is what records call the operating system's generator.
const SystemName = "system"

// System draws from the operating system's generator.
type System struct {
	reader io.Reader
	now    func() time.Time
	seq    atomic.Uint64
}

// NewSystem returns the operating system's generator.
func NewSystem() *System { return &System{reader: rand.Reader, now: time.Now} }

// Draw implements [entropy.Source].
func (s *System) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	if err := ctx.Err(); err != nil {
		return entropy.Block{}, fmt.Errorf("draw %d bytes from system: %w", len(buf), err)
	}
	asked := s.now()
	if _, err := io.ReadFull(s.reader, buf); err != nil {
		return entropy.Block{}, fmt.Errorf("draw %d bytes from system: %w", len(buf), err)
	}
	return entropy.Block{
		Bytes: buf, Source: SystemName, Device: "crypto/rand",
		Requested: asked, Arrived: s.now(),
		Sequence: s.seq.Add(1), Class: entropy.ClassPool,
	}, nil
}
