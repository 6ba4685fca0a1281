// Package local has the sources that need nothing but this machine: the operating system's generator, timing jitter, recorded bytes, and
// computed ones for controls and tests. All are safe for concurrent use and start no goroutine.
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

// SystemConfig has no options.
type SystemConfig struct{}

// DefaultSystemConfig is the only one.
func DefaultSystemConfig() SystemConfig { return SystemConfig{} }

// Validate accepts it.
func (SystemConfig) Validate() error { return nil }

// System draws from the operating system's generator.
type System struct {
	name   string
	reader io.Reader
	now    func() time.Time
	seq    atomic.Uint64
}

// NewSystem returns the operating system's generator under its own name.
func NewSystem() *System { return newSystem(SystemName) }

func newSystem(name string) *System { return &System{name: name, reader: rand.Reader, now: time.Now} }

// OpenSystem returns the operating system's generator.
func OpenSystem(_ context.Context, name string, _ SystemConfig) (*System, error) {
	return newSystem(name), nil
}

// Draw implements [entropy.Source].
func (s *System) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	if err := ended(ctx, s.name, len(buf)); err != nil {
		return entropy.Block{}, err
	}
	asked := s.now()
	if _, err := io.ReadFull(s.reader, buf); err != nil {
		return entropy.Block{}, &entropy.Error{Kind: entropy.KindTransport, Source: s.name, Message: fmt.Sprintf("draw %d bytes", len(buf)), Err: err}
	}
	return entropy.Block{
		Bytes: buf, Source: s.name, Device: "crypto/rand",
		Requested: asked, Arrived: s.now(),
		Sequence: s.seq.Add(1), Class: entropy.ClassPool,
	}, nil
}

// Probe implements [entropy.Prober].
func (s *System) Probe(context.Context) (entropy.Capabilities, error) {
	return entropy.Capabilities{Device: "crypto/rand", Class: entropy.ClassPool}, nil
}

// ended is the error of a draw whose caller has gone.
func ended(ctx context.Context, name string, n int) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("draw %d bytes from entropy source %s: %w", n, name, err)
	}
	return nil
}
