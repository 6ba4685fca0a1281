package guard

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/regular"
)

// Limits of a calibration.
const (
	MinBlocks     = 16 // of one that an operator asks for
	leastBlocks   = 2  // of any: a spread takes two
	MaxBlocks     = 1 << 20
	MaxBlockBytes = 1 << 24
)

// Mean and standard deviation of a uniform byte: sqrt((256^2-1)/12).
const (
	uniformMean = 127.5
	uniformStd  = 73.90027063549903
)

// Calibration is the frozen baseline of a source: the sums of the bytes of blocks drawn once. It is never changed.
//
// Its mean is itself a measurement. Over T later draws of the same size the summed z-score is off by about sqrt(T/blocks) standard
// deviations, so blocks should be at least as many as the draws of a study; 4 times as many bring it to half a standard deviation.
type Calibration struct {
	Source     string    `json:"source"`
	Device     string    `json:"device,omitempty"`
	When       time.Time `json:"when"`
	BlockBytes int       `json:"block_bytes"`
	Sums       []uint64  `json:"sums"` // of each block, in the order drawn
	// Mean is of a byte; MeanError is its standard error from the spread of the blocks.
	Mean      float64 `json:"mean"`
	MeanError float64 `json:"mean_error"`
	// BlockStd is the standard deviation of block means. Std scales it to one byte: it is that of the bytes when they are independent,
	// and larger when neighbours are correlated, as it must be for z.
	BlockStd float64 `json:"block_std"`
	Std      float64 `json:"std"`
	// HalvesZ compares the first half of the blocks with the second; beyond 4 either way the source drifted while it was measured.
	HalvesZ float64 `json:"halves_z"`
	// Hash is of source, device, block size and sums.
	Hash string `json:"hash"`
}

// ErrUnstable is a calibration whose halves differ.
var ErrUnstable = errors.New("the halves of the calibration differ: the source drifts")

// ErrConstant is a calibration without any spread.
var ErrConstant = errors.New("all blocks have the same sum: the source is stuck")

// NewCalibration computes the baseline from sums of blocks of n bytes.
func NewCalibration(source, device string, when time.Time, n int, sums []uint64) (*Calibration, error) {
	if len(sums) < leastBlocks || len(sums) > MaxBlocks {
		return nil, fmt.Errorf("calibrate: %d blocks, want %d to %d", len(sums), leastBlocks, MaxBlocks)
	}
	if n < 1 || n > MaxBlockBytes {
		return nil, fmt.Errorf("calibrate: blocks of %d bytes, want 1 to %d", n, MaxBlockBytes)
	}
	if s := slices.Max(sums); s > 255*uint64(n) {
		return nil, fmt.Errorf("calibrate: %d bytes can't sum to %d", n, s)
	}
	c := &Calibration{Source: source, Device: device, When: when.UTC(), BlockBytes: n, Sums: sums}
	var std float64
	c.Mean, std = moments(sums, n)
	if std == 0 {
		return nil, fmt.Errorf("calibrate: %w", ErrConstant)
	}
	c.BlockStd, c.Std = std, std*math.Sqrt(float64(n))
	c.MeanError = std / math.Sqrt(float64(len(sums)))
	half := len(sums) / 2
	a, sa := moments(sums[:half], n)
	b, sb := moments(sums[half:], n)
	if e := math.Sqrt(sa*sa/float64(half) + sb*sb/float64(len(sums)-half)); e > 0 {
		c.HalvesZ = (b - a) / e
	}
	c.Hash = c.digest()
	return c, nil
}

// fits says why the baseline can't be that of a device. One without a name may be any.
func (c *Calibration) fits(device string) error {
	if c.Device == "" || device == "" || c.Device == device {
		return nil
	}
	return fmt.Errorf("the baseline (calibration_file) is of device %q, the bytes are of %q", c.Device, device)
}

// Stable is the split-half check, of a baseline that is to be frozen.
func (c *Calibration) Stable() error {
	if len(c.Sums) < MinBlocks {
		return fmt.Errorf("a baseline of %d blocks says too little: want %d", len(c.Sums), MinBlocks)
	}
	if math.Abs(c.HalvesZ) > 4 {
		return fmt.Errorf("%w (z = %.1f)", ErrUnstable, c.HalvesZ)
	}
	return nil
}

// moments are the mean and the standard deviation of the means of blocks.
func moments(sums []uint64, n int) (mean, std float64) {
	for _, s := range sums {
		mean += float64(s) / float64(n)
	}
	mean /= float64(len(sums))
	for _, s := range sums {
		d := float64(s)/float64(n) - mean
		std += d * d
	}
	return mean, math.Sqrt(std / float64(len(sums)-1))
}

func (c *Calibration) digest() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %d\n", c.Source, c.Device, c.BlockBytes)
	for _, s := range c.Sums {
		_ = binary.Write(h, binary.BigEndian, s) // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Save writes c as JSON. An existing file is never replaced: a baseline that was used stays what it was.
func (c *Calibration) Save(path string) error {
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("save calibration: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("save calibration: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("save calibration: %w", err)
	}
	return nil
}

// maxCalibrationFile bounds what is read: a million sums of 11 characters fit.
const maxCalibrationFile = 32 << 20

// LoadCalibration reads a file written by [Calibration.Save], computes it anew from the sums and checks its hash.
func LoadCalibration(path string) (*Calibration, error) {
	text, err := regular.Read(path, maxCalibrationFile)
	if err != nil {
		return nil, fmt.Errorf("load calibration: %w", err)
	}
	c, err := parseCalibration(text)
	if err != nil {
		return nil, fmt.Errorf("load calibration %s: %w", path, err)
	}
	return c, nil
}

func parseCalibration(text []byte) (*Calibration, error) {
	var read Calibration
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, err
	}
	c, err := NewCalibration(read.Source, read.Device, read.When, read.BlockBytes, read.Sums)
	if err != nil {
		return nil, err
	}
	if c.Hash != read.Hash {
		return nil, fmt.Errorf("its hash is %.16s, the content's %.16s: the file was changed", read.Hash, c.Hash)
	}
	return c, c.Stable()
}

// Calibrated is a source that has a baseline, or nil: one behind a guard, or one that is made of such.
type Calibrated interface{ Calibration() *Calibration }

// Calibration is the source's baseline, or nil.
func (g *Guard) Calibration() *Calibration {
	if c := g.baseline.Load(); c != nil {
		return c
	}
	if c, ok := g.src.(Calibrated); ok {
		return c.Calibration()
	}
	return nil
}

// Calibrate measures blocks of n bytes and makes them the baseline unless there is one already: a baseline is never replaced while the
// source is open. It is for the start and for operators; a request never waits for it.
func (g *Guard) Calibrate(ctx context.Context, blocks, n int) (*Calibration, error) {
	if blocks < MinBlocks || blocks > MaxBlocks || n < 1 || n > MaxBlockBytes {
		return nil, fmt.Errorf("calibrate entropy source %s: %d blocks of %d bytes, want %d to %d of 1 to %d", g.name, blocks, n, MinBlocks, MaxBlocks, MaxBlockBytes)
	}
	c, err := Measure(ctx, g.name, own{g}, blocks, n)
	if err != nil {
		return nil, err
	}
	if err := c.Stable(); err != nil {
		return nil, &entropy.Error{Kind: entropy.KindHealth, Source: g.name, Message: "calibrate", Hint: "let the device warm up and measure again", Err: err}
	}
	g.baseline.CompareAndSwap(nil, c)
	return c, nil
}

// own are the blocks of the source itself, whatever the policy.
type own struct{ guard *Guard }

// Draw implements [entropy.Source].
func (o own) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	b, _, err := o.guard.draw(ctx, buf)
	return b, err
}

// Measure draws the blocks of a calibration of src, which is called name. A block of a second choice, or of another device than the first,
// says nothing about the source: then there is none.
func Measure(ctx context.Context, name string, src entropy.Source, blocks, n int) (*Calibration, error) {
	buf, sums := make([]byte, n), make([]uint64, blocks)
	var first entropy.Block
	for i := range sums {
		b, err := src.Draw(ctx, buf)
		if err != nil {
			return nil, fmt.Errorf("calibrate %s: %w", name, err)
		}
		if i == 0 {
			first = b
		}
		switch {
		case b.Fallback:
			return nil, &entropy.Error{
				Kind: entropy.KindTransport, Source: name, Message: "it can't be calibrated while " + b.Source + " serves in its place",
				Hint: "try again when it is back",
			}
		case b.Device != first.Device:
			return nil, &entropy.Error{
				Kind: entropy.KindProtocol, Source: name, Hint: "set expect_device to one of them",
				Message: fmt.Sprintf("it can't be calibrated: its bytes are of device %q, and then of %q", first.Device, b.Device),
			}
		}
		sums[i] = sum(buf)
	}
	c, err := NewCalibration(name, first.Device, first.Requested, n, sums)
	if err != nil {
		return nil, &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "calibrate", Err: err}
	}
	return c, nil
}

// sum adds the bytes of buf, eight at a time in four lanes of 16 bits.
func sum(buf []byte) uint64 {
	const even = 0x00ff00ff00ff00ff
	var total uint64
	for len(buf) >= 8 {
		n := min(len(buf)/8, 128) // 128 times 2 bytes of 255 fit 16 bits
		var lanes uint64
		for i := range n {
			w := binary.LittleEndian.Uint64(buf[8*i:])
			lanes += w&even + w>>8&even
		}
		total += lanes&0xffff + lanes>>16&0xffff + lanes>>32&0xffff + lanes>>48
		buf = buf[8*n:]
	}
	for _, x := range buf {
		total += uint64(x)
	}
	return total
}
