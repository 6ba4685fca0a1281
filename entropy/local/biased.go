package local

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"qr-gateway/entropy"
)

// The faults of a biased mock.
const (
	FaultShift     = "shift"     // every bit is 1 with probability 1/2 + shift/255, so the byte mean is 127.5 + shift
	FaultStuck     = "stuck"     // every byte is value
	FaultCounter   = "counter"   // bytes count up from value
	FaultDuplicate = "duplicate" // every second block is the block before, where their sizes are equal
)

// BiasedConfig chooses a fault.
type BiasedConfig struct {
	MockConfig `mapstructure:",squash"`
	// Fault is shift, stuck, counter or duplicate.
	Fault string `mapstructure:"fault"`
	// Shift of the byte mean, between -127.5 and 127.5.
	Shift float64 `mapstructure:"shift"`
	// Value of a stuck byte, or the first of a counter.
	Value uint8 `mapstructure:"value"`
}

// DefaultBiasedConfig shifts the byte mean by 1: z is 1.9 at 20,480 bytes.
func DefaultBiasedConfig() BiasedConfig { return BiasedConfig{Fault: FaultShift, Shift: 1} }

// Validate names the option that can't be used.
func (c BiasedConfig) Validate() error {
	switch c.Fault {
	case FaultShift, FaultStuck, FaultCounter, FaultDuplicate:
	default:
		return fmt.Errorf("fault is %q, want shift, stuck, counter or duplicate", c.Fault)
	}
	if !(math.Abs(c.Shift) <= 127.5) {
		return fmt.Errorf("shift is %v, want -127.5 to 127.5", c.Shift)
	}
	return c.MockConfig.Validate()
}

// Biased computes bytes with a known fault, to try tests on.
type Biased struct {
	name string
	cfg  BiasedConfig
	base *Mock

	mu    sync.Mutex // guards what follows
	gaps  *rand.Rand
	gap   uint64 // bits left alone before the next one that is forced
	count uint8
	last  []byte // the block before, to be given again
	seq   uint64
}

// OpenBiased returns a source with the fault of cfg.
func OpenBiased(ctx context.Context, name string, cfg BiasedConfig) (*Biased, error) {
	if err := cfg.Validate(); err != nil {
		return nil, badOption(name, err)
	}
	base, err := OpenMock(ctx, name, cfg.MockConfig)
	if err != nil {
		return nil, err
	}
	s := &Biased{name: name, cfg: cfg, base: base, gaps: rand.New(rand.NewPCG(cfg.Seed, 1)), count: cfg.Value}
	s.gap = s.nextGap()
	return s, nil
}

// Draw implements [entropy.Source].
func (s *Biased) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	if err := ended(ctx, s.name, len(buf)); err != nil {
		return entropy.Block{}, err
	}
	asked := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fill(buf)
	s.seq++
	return entropy.Block{
		Bytes: buf, Source: s.name, Device: "mock " + s.cfg.Fault, Requested: asked, Arrived: time.Now(), Sequence: s.seq, Class: entropy.ClassReplay,
	}, nil
}

func (s *Biased) fill(buf []byte) {
	switch s.cfg.Fault {
	case FaultStuck:
		for i := range buf {
			buf[i] = s.cfg.Value
		}
	case FaultCounter:
		for i := range buf {
			buf[i] = s.count
			s.count++
		}
	case FaultDuplicate:
		if len(buf) == len(s.last) {
			copy(buf, s.last)
			s.last = nil
			return
		}
		s.base.read(buf)
		s.last = append([]byte(nil), buf...)
	default:
		s.base.read(buf)
		s.force(buf)
	}
}

// force sets or clears each bit with probability 2|shift|/255, which moves a fair bit by half of that. It jumps from one to the next.
func (s *Biased) force(buf []byte) {
	total := uint64(len(buf)) * 8
	at := s.gap
	for ; at < total; at += 1 + s.nextGap() {
		if bit := byte(1) << (at % 8); s.cfg.Shift > 0 {
			buf[at/8] |= bit
		} else {
			buf[at/8] &^= bit
		}
	}
	s.gap = at - total
}

func (s *Biased) nextGap() uint64 {
	q := 2 * math.Abs(s.cfg.Shift) / 255
	switch {
	case q == 0:
		return math.MaxUint64 >> 1
	case q >= 1:
		return 0
	}
	return uint64(math.Log(1-s.gaps.Float64()) / math.Log1p(-q))
}

// Probe implements [entropy.Prober].
func (s *Biased) Probe(context.Context) (entropy.Capabilities, error) {
	return entropy.Capabilities{Device: "mock " + s.cfg.Fault, Class: entropy.ClassReplay}, nil
}
