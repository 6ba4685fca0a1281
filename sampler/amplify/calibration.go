package amplify

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

var (
	// ErrTooFew says that a calibration had fewer than two blocks.
	ErrTooFew = errors.New("calibration needs 2 blocks or more")
	// ErrNoVariance says that all blocks of a calibration had the same mean: such a source decides nothing.
	ErrNoVariance = errors.New("all calibration blocks have the same mean")
)

// Calibration is what was measured of one source with blocks of one length. It is made once per source, never changed, and named by its
// hash in the records of the tokens it served.
type Calibration struct {
	BlockBytes int     // of one block
	Blocks     int     // that were read
	Mean       float64 // of a byte: the mean of the blocks' means
	// Std is that of a byte as far as the mean of a block goes: the sample standard deviation of the blocks' means times
	// sqrt(BlockBytes). Bytes that are correlated make it differ from the standard deviation of single bytes.
	Std float64
	// MeanSE is the standard error of Mean: Std/sqrt(BlockBytes*Blocks). It is a constant offset of every z, of 1/sqrt(Blocks).
	MeanSE float64

	means []float64 // ascending
	hash  string
}

// Calibrate measures a source by the means of blocks of blockBytes bytes, which it neither changes nor keeps. Fewer than two are
// [ErrTooFew], equal ones [ErrNoVariance].
func Calibrate(blockBytes int, means []float64) (*Calibration, error) {
	if blockBytes < 1 {
		return nil, fmt.Errorf("calibrate source: blocks have %d bytes; 1 is the least", blockBytes)
	}
	for i, m := range means {
		if !(m >= 0 && m <= 255) {
			return nil, fmt.Errorf("calibrate source: mean of block %d is %v; it lies between 0 and 255", i, m)
		}
	}
	if len(means) < 2 {
		return nil, fmt.Errorf("calibrate source with %d blocks: %w", len(means), ErrTooFew)
	}
	c := &Calibration{BlockBytes: blockBytes, Blocks: len(means), means: slices.Clone(means)}
	slices.Sort(c.means)
	if c.means[0] == c.means[len(c.means)-1] {
		return nil, fmt.Errorf("calibrate source with %d blocks of mean %v: %w", len(means), means[0], ErrNoVariance)
	}
	c.measure()
	return c, nil
}

// measure fills in what follows from the means. They are taken in ascending order, so that it doesn't depend on the order of the blocks.
func (c *Calibration) measure() {
	n := float64(c.Blocks)
	for _, m := range c.means {
		c.Mean += m / n
	}
	squares := 0.0
	for _, m := range c.means {
		squares += (m - c.Mean) * (m - c.Mean)
	}
	c.Std = math.Sqrt(squares/(n-1)) * math.Sqrt(float64(c.BlockBytes))
	c.MeanSE = c.Std / math.Sqrt(float64(c.BlockBytes)*n)
	c.hash = hashMeans(c.BlockBytes, c.means)
}

// hashMeans is the SHA-256 of "qr-calibration-1\n", the length of a block as 8 bytes and the ascending means as IEEE doubles of 8 bytes,
// all little-endian.
func hashMeans(blockBytes int, means []float64) string {
	b := append(make([]byte, 0, 32+8*len(means)), "qr-calibration-1\n"...)
	b = binary.LittleEndian.AppendUint64(b, uint64(blockBytes))
	for _, m := range means {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(m))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Hash names the calibration: a hex SHA-256 of the length of a block and of all means.
func (c *Calibration) Hash() string { return c.hash }

// Means returns the means of the blocks, ascending.
func (c *Calibration) Means() []float64 { return slices.Clone(c.means) }

// Config describes the source as measured.
func (c *Calibration) Config() Config {
	return Config{Mean: c.Mean, Std: c.Std, Epsilon: Epsilon, Calibration: c}
}

// stored is the JSON form. What follows from the means is written for readers, and checked against them when read.
type stored struct {
	BlockBytes int       `json:"block_bytes"`
	Blocks     int       `json:"blocks"`
	Mean       float64   `json:"mean"`
	Std        float64   `json:"std"`
	MeanSE     float64   `json:"mean_se"`
	Hash       string    `json:"sha256"`
	Means      []float64 `json:"means"`
}

// MarshalJSON implements [json.Marshaler].
func (c *Calibration) MarshalJSON() ([]byte, error) {
	return json.Marshal(stored{c.BlockBytes, c.Blocks, c.Mean, c.Std, c.MeanSE, c.hash, c.means})
}

// UnmarshalJSON implements [json.Unmarshaler]. It is an error where the hash isn't that of the means.
func (c *Calibration) UnmarshalJSON(data []byte) error {
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read calibration: %w", err)
	}
	made, err := Calibrate(s.BlockBytes, s.Means)
	if err != nil {
		return fmt.Errorf("read calibration: %w", err)
	}
	if made.hash != s.Hash || s.Blocks != made.Blocks {
		return fmt.Errorf("read calibration: its %d means hash to %s, not to %s: the file was changed", made.Blocks, made.hash, s.Hash)
	}
	*c = *made
	return nil
}
