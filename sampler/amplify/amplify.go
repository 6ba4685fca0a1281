// Package amplify turns blocks of raw bytes into uniform numbers. What an amplifier is and which there are is one table, [Kinds]; what it
// has to know of the source is a [Config], measured once per source by [Calibrate].
//
//	amp, err := amplify.New(amplify.DefaultConfig())
//	r, err := amp.Read(block) // r.U lies strictly between 0 and 1
//
// Calibrations and amplifiers other than [ZScoreThought] are never changed once made and may be shared by goroutines.
package amplify

import (
	"errors"
	"fmt"
	"math"
)

var (
	// ErrEmpty says that there was no byte to make a number of.
	ErrEmpty = errors.New("block is empty")
	// ErrNoCalibration says that an amplifier which needs a calibration of the source was given none.
	ErrNoCalibration = errors.New("amplifier needs a calibration of the source")
	// ErrUnknown says that no amplifier has the name.
	ErrUnknown = errors.New("unknown amplifier")
)

// Bytes of a perfect source are uniform over 0 to 255.
const (
	ByteMean = 127.5
	ByteStd  = 73.90027063549903 // sqrt((256^2-1)/12)
	// CompatStd is the continuous uniform's, 255/sqrt(12), which older programs took for that of a byte. It makes z 0.39 % too large.
	CompatStd = 73.61215932167728
)

// Epsilon is the usual distance of u from 0 and 1.
const Epsilon = 1e-10

// Reading is the number made of one block, and what it was made from.
type Reading struct {
	U     float64 // uniform, strictly between 0 and 1
	Z     float64 // standard score of the mean; 0 where the amplifier has none
	Mean  float64 // of the bytes
	SEM   float64 // standard error of Mean, as the amplifier takes it; 0 where it has none
	Bytes int     // in the block
	Rank  int     // calibration blocks whose mean is not over Mean, and
	Of    int     // how many there are; 0 without calibration
}

// Amplifier makes one uniform number of a block.
type Amplifier interface {
	// Read returns the number of block, all of which it uses and none of which it keeps. It allocates nothing. An empty block is [ErrEmpty].
	Read(block []byte) (Reading, error)
}

// Config says what an amplifier takes the bytes of the source to be.
type Config struct {
	Mean    float64 // of one byte
	Std     float64 // of one byte, over 0: of the mean of n bytes it is Std/sqrt(n)
	Epsilon float64 // u is kept within [Epsilon, 1-Epsilon]; 0: only off 0 and 1 themselves
	// Calibration is what was measured of the source, for amplifiers that need it.
	Calibration *Calibration
	// BlockBytes is the length of the blocks to come. A calibration for another one is refused. 0: not known, not checked.
	BlockBytes int
}

// DefaultConfig describes uniform bytes.
func DefaultConfig() Config { return Config{Mean: ByteMean, Std: ByteStd, Epsilon: Epsilon} }

// Validate reports a description that no source can have.
func (c Config) Validate() error {
	if !(c.Mean >= 0 && c.Mean <= 255) {
		return fmt.Errorf("mean of a byte is %v; it lies between 0 and 255", c.Mean)
	}
	if !(c.Std > 0 && c.Std <= math.MaxFloat64) {
		return fmt.Errorf("standard deviation of a byte is %v; it is finite and over 0", c.Std)
	}
	return c.validateEpsilon()
}

func (c Config) validateEpsilon() error {
	if !(c.Epsilon >= 0 && c.Epsilon < 0.5) {
		return fmt.Errorf("distance of u from 0 and 1 is %v; it is 0 or more and under 0.5", c.Epsilon)
	}
	return nil
}

// keep moves u into [epsilon, 1-epsilon], and strictly between 0 and 1.
func (c Config) keep(u float64) float64 {
	low, high := max(c.Epsilon, math.SmallestNonzeroFloat64), min(1-c.Epsilon, 1-0x1p-53)
	return min(max(u, low), high)
}
