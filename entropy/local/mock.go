package local

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"qr-gateway/entropy"
)

// maxOffset bounds what a mock computes to get to its first byte.
const maxOffset = 1 << 30

// MockConfig chooses a stream of computed bytes: ChaCha8 (math/rand/v2) under a key. The same key and offset give the same bytes on
// every machine, so a control run can be made again.
type MockConfig struct {
	// Seed is the first 8 bytes of the key, little-endian; the others are 0.
	Seed uint64 `mapstructure:"seed"`
	// SeedHex is the whole key instead, 64 hexadecimal digits.
	SeedHex string `mapstructure:"seed_hex"`
	// Offset is how many bytes of the stream are skipped, up to 2^30.
	Offset uint64 `mapstructure:"offset"`
}

// DefaultMockConfig is the stream of seed 0.
func DefaultMockConfig() MockConfig { return MockConfig{} }

// Validate names the option that can't be used.
func (c MockConfig) Validate() error {
	_, err := c.key()
	return err
}

func (c MockConfig) key() (key [32]byte, err error) {
	if c.Offset > maxOffset {
		return key, fmt.Errorf("offset is %d, want at most %d bytes", c.Offset, maxOffset)
	}
	if c.SeedHex == "" {
		binary.LittleEndian.PutUint64(key[:], c.Seed)
		return key, nil
	}
	if c.Seed != 0 {
		return key, errors.New("seed and seed_hex are both set: remove one")
	}
	raw, err := hex.DecodeString(c.SeedHex)
	if err != nil || len(raw) != len(key) {
		return key, fmt.Errorf("seed_hex has %d characters, want 64 hexadecimal digits", len(c.SeedHex))
	}
	copy(key[:], raw)
	return key, nil
}

// Mock is a stream of computed, uniform bytes. It is a true null source, and no randomness of this moment.
type Mock struct {
	name   string
	device string

	mu     sync.Mutex // guards what follows
	stream *rand.ChaCha8
	seq    uint64
}

// OpenMock returns the stream of cfg from its offset on.
func OpenMock(_ context.Context, name string, cfg MockConfig) (*Mock, error) {
	key, err := cfg.key()
	if err != nil {
		return nil, badOption(name, err)
	}
	m := &Mock{name: name, device: fmt.Sprintf("chacha8 %x+%d", key[:8], cfg.Offset), stream: rand.NewChaCha8(key)}
	skip := make([]byte, 1<<16)
	for left := cfg.Offset; left > 0; {
		n := min(left, uint64(len(skip)))
		m.read(skip[:n])
		left -= n
	}
	return m, nil
}

func (m *Mock) read(buf []byte) { _, _ = m.stream.Read(buf) } // documented to fill buf without an error

// Draw implements [entropy.Source].
func (m *Mock) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	if err := ended(ctx, m.name, len(buf)); err != nil {
		return entropy.Block{}, err
	}
	asked := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read(buf)
	m.seq++
	return entropy.Block{
		Bytes: buf, Source: m.name, Device: m.device, Requested: asked, Arrived: time.Now(), Sequence: m.seq, Class: entropy.ClassReplay,
	}, nil
}

// Probe implements [entropy.Prober].
func (m *Mock) Probe(context.Context) (entropy.Capabilities, error) {
	return entropy.Capabilities{Device: m.device, Class: entropy.ClassReplay}, nil
}

func badOption(name string, err error) error {
	return &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "check options", Err: err}
}
