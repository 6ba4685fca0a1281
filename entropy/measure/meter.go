package measure

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/bits"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/health"
)

// nLags is how many autocorrelations are measured.
const nLags = 8

// Meter adds up what blocks show.
type Meter struct {
	cfg     Config
	dist    sums
	monitor *health.Monitor
	first   entropy.Block
	total   time.Duration

	bytes      [256]uint64
	bits       [8]uint64 // ones by position, the lowest first
	lags       [nLags]lag
	blocks     map[[sha256.Size]byte]bool
	duplicates int
	flags      map[string]int
	alarms     map[string]int
	run, count int // the highest of the health tests

	latency []float64 // s
	sums    []uint64
}

// lag is the sum of products of bytes so far apart, within blocks.
type lag struct{ n, x, y, xy uint64 }

// NewMeter returns an empty meter.
func NewMeter(cfg Config) (*Meter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("examine source: %w", err)
	}
	return &Meter{
		cfg: cfg, dist: newSums(cfg), monitor: health.New(cfg.Health), blocks: map[[sha256.Size]byte]bool{}, flags: map[string]int{}, alarms: map[string]int{},
	}, nil
}

// Add takes the next block, whose length is the configured one.
func (m *Meter) Add(b entropy.Block) {
	if len(m.sums) == 0 {
		m.first = b
		m.first.Bytes = nil
	}
	took := b.Arrived.Sub(b.Requested)
	m.total += took
	m.latency = append(m.latency, took.Seconds())
	m.test(b)
	m.tally(b.Bytes)
	for k := range m.lags {
		m.lags[k].add(b.Bytes, k+1)
	}
}

func (m *Meter) test(b entropy.Block) {
	r := m.monitor.Test(b.Bytes)
	m.run, m.count = max(m.run, r.Run), max(m.count, r.Count)
	for _, name := range (r.Flags &^ entropy.FlagDuplicate).Names() {
		m.alarms[name]++
	}
	for _, name := range b.Flags.Names() {
		m.flags[name]++
	}
	digest := sha256.Sum256(b.Bytes)
	if m.blocks[digest] {
		m.duplicates++
	}
	m.blocks[digest] = true
}

func (m *Meter) tally(block []byte) {
	sum := uint64(0)
	for _, x := range block {
		m.bytes[x]++
		sum += uint64(x)
	}
	m.sums = append(m.sums, sum)
}

// ones are counted by position from the counts of bytes.
func (m *Meter) ones() (total uint64) {
	m.bits = [8]uint64{}
	for x, n := range m.bytes {
		total += n * uint64(bits.OnesCount8(uint8(x)))
		for bit := range m.bits {
			m.bits[bit] += n * uint64(x>>bit&1)
		}
	}
	return total
}

func (l *lag) add(block []byte, k int) {
	if len(block) <= k {
		return
	}
	var x, y, xy uint64
	a, b := block[:len(block)-k], block[k:]
	for i, v := range a {
		w := uint64(b[i])
		x += uint64(v)
		y += w
		xy += uint64(v) * w
	}
	l.n += uint64(len(a))
	l.x, l.y, l.xy = l.x+x, l.y+y, l.xy+xy
}

// correlation is the lag's, with the variance of all bytes.
func (l *lag) correlation(variance float64) float64 {
	if l.n == 0 || variance == 0 {
		return 0
	}
	n := float64(l.n)
	return (float64(l.xy)/n - float64(l.x)/n*(float64(l.y)/n)) / variance
}

// moments of a byte from the counts.
func (m *Meter) moments() (n, mean, variance float64) {
	for x, c := range m.bytes {
		n += float64(c)
		mean += float64(c) * float64(x)
	}
	mean /= n
	for x, c := range m.bytes {
		d := float64(x) - mean
		variance += float64(c) * d * d
	}
	return n, mean, variance / n
}

// z is a block's score against the baseline.
func (m *Meter) z(sum uint64) float64 { return (float64(sum) - m.dist.mean) / m.dist.std }

// phi is the normal distribution function.
func phi(z float64) float64 { return 0.5 * math.Erfc(-z/math.Sqrt2) }
