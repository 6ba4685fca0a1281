package device

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"qr-gateway/entropy"
)

const (
	maxDraw    = 16 << 20 // bytes of one draw
	maxDiscard = 1 << 20
	maxBaud    = 12_000_000
)

// Config says which device to read and what to do before and after each read. A recipe fills in what is left empty.
//
// The steps of a read: Stop, Flush, Start, DTR on, ReadyFile and Discard, the bytes, Stop, DTR off.
type Config struct {
	Path   string `mapstructure:"path"`   // of the device; a link such as /dev/serial/by-id/... is followed
	Recipe string `mapstructure:"recipe"` // a known device, or empty
	Kind   string `mapstructure:"kind"`   // char or serial

	Baud  int    `mapstructure:"baud"`  // serial: bits per second; 0 leaves it
	Knock []int  `mapstructure:"knock"` // serial: speeds to open it with before, in this order
	DTR   string `mapstructure:"dtr"`   // serial: gate turns the line on only for reading; empty leaves it on
	Flush bool   `mapstructure:"flush"` // serial: drop what waits in the input queue

	Stop      []string `mapstructure:"stop"`       // written before and after; text with escapes such as \n, or hex:e0
	Start     []string `mapstructure:"start"`      // written before the bytes are read
	Discard   int      `mapstructure:"discard"`    // bytes to read and throw away: the size of the buffer between
	ReadyFile string   `mapstructure:"ready_file"` // file below /sys that says how much waits in the driver; it is thrown away too
	ReadyUnit int      `mapstructure:"ready_unit"` // bytes that one of that count stands for; 0 is 1
	CheckRNG  bool     `mapstructure:"check_rng"`  // hwrng: fail if the kernel's source changes in a draw
	RNG       string   `mapstructure:"rng"`        // hwrng: the source it must be, as rng_current names it; empty: any

	Protocol string `mapstructure:"protocol"` // empty: it sends bytes; qcicada: commands

	AllowUrandom bool `mapstructure:"allow_urandom"` // read /dev/urandom, which is a generator: its class is pool
	AllowAny     bool `mapstructure:"allow_any"`     // read a character device of a kind that is not known to make random bytes

	Class   entropy.Class `mapstructure:"class"`    // empty: the recipe's, else buffer
	Rate    float64       `mapstructure:"rate"`     // bytes per second that it makes: a draw gets at least twice the time; 0 is unknown
	MaxDraw int           `mapstructure:"max_draw"` // bytes of one read; longer draws take several; 0 is no limit
	Timeout time.Duration `mapstructure:"timeout"`  // of one read, beyond what the rate asks for
}

// DefaultConfig returns the defaults. Path or recipe is still to be set.
func DefaultConfig() Config { return Config{Timeout: 5 * time.Second} }

// findings collects what is wrong.
type findings []error

func (f *findings) check(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// Validate says what is wrong. It does not look at the device.
func (c Config) Validate() error {
	if _, ok := findRecipe(c.Recipe); !ok && c.Recipe != "" {
		return fmt.Errorf("recipe is %q; it must be one of %s", c.Recipe, strings.Join(recipeNames(), ", "))
	}
	c = c.resolve()
	return errors.Join(c.validateSteps(), c.validateNumbers(), c.validateClass())
}

func (c Config) validateSteps() error {
	var f findings
	serial := c.Kind == KindSerial
	f.check(c.Path != "", "path is empty: give the device, such as /dev/hwrng, or a recipe")
	f.check(c.Path == "" || filepath.IsAbs(c.Path), "path %q is relative; give an absolute one", c.Path)
	f.check(c.Kind == KindChar || serial, "kind is %q; it must be char or serial", c.Kind)
	f.check(serial || c.Baud == 0 && c.DTR == "" && !c.Flush && len(c.Knock) == 0, "baud, dtr, flush and knock are for kind serial")
	f.check(c.DTR == DTRLeave || c.DTR == DTRGate, "dtr is %q; it must be gate, or empty", c.DTR)
	f.check(c.Protocol == ProtocolStream || c.Protocol == ProtocolQCicada && serial, "protocol is %q; it must be qcicada (for kind serial), or empty", c.Protocol)
	f.check(c.Protocol == ProtocolStream || len(c.Start)+len(c.Stop) == 0 && c.Discard == 0 && c.DTR == "", "start, stop, discard and dtr are not for protocol %s, which has its own", c.Protocol)
	f.check(c.ReadyFile == "" || strings.HasPrefix(filepath.Clean(c.ReadyFile), "/sys/"), "ready_file %q does not lie below /sys", c.ReadyFile)
	f.check(c.RNG == "" || c.CheckRNG, "rng needs check_rng")
	for _, text := range slices.Concat(c.Start, c.Stop) {
		_, err := command(text)
		f.check(err == nil, "%w", err)
	}
	return errors.Join(f...)
}

func (c Config) validateNumbers() error {
	var f findings
	for _, baud := range append(slices.Clone(c.Knock), c.Baud) {
		f.check(baud >= 0 && baud <= maxBaud, "baud is %d; it must be 0 to %d", baud, maxBaud)
	}
	f.check(c.Discard >= 0 && c.Discard <= maxDiscard, "discard is %d; it must be 0 to %d bytes", c.Discard, maxDiscard)
	f.check(c.ReadyUnit >= 0 && c.ReadyUnit <= maxDiscard, "ready_unit is %d; it must be 0 to %d bytes", c.ReadyUnit, maxDiscard)
	f.check(c.MaxDraw >= 0 && c.MaxDraw <= maxDraw, "max_draw is %d; it must be 0 to %d bytes", c.MaxDraw, maxDraw)
	f.check(c.Protocol != ProtocolQCicada || c.MaxDraw >= 1 && c.MaxDraw <= qcicadaShot, "max_draw is %d; with protocol qcicada it must be 1 to %d bytes", c.MaxDraw, qcicadaShot)
	f.check(c.Timeout > 0 && c.Timeout <= time.Hour, "timeout is %v; it must be over 0 and at most 1h", c.Timeout)
	f.check(c.Rate >= 0 && c.Rate < 1e12 && !math.IsNaN(c.Rate) && (c.Rate == 0 || c.Rate >= 1), "rate is %v; it must be 0, or 1 to 1e12 bytes per second", c.Rate)
	return errors.Join(f...)
}

func (c Config) validateClass() error {
	var f findings
	f.check(c.Class.Known(), "class is %q; it must be jit, buffer, unknown, pool or replay", c.Class)
	f.check(!c.AllowUrandom || c.Class == entropy.ClassPool, "class is %q; with allow_urandom it must be pool, which it is", c.Class)
	drains := c.Flush || c.Discard > 0 || c.ReadyFile != "" || c.Protocol != ProtocolStream || c.DTR == DTRGate
	f.check(c.Class != entropy.ClassJIT || drains, "class jit needs flush, discard, ready_file or dtr: else bytes that waited would be used")
	return errors.Join(f...)
}

// command returns what a text says to write.
func command(text string) ([]byte, error) {
	if digits, ok := strings.CutPrefix(text, "hex:"); ok {
		b, err := hex.DecodeString(digits)
		if err != nil || len(b) == 0 {
			return nil, fmt.Errorf("command %q is no hexadecimal text", text)
		}
		return b, nil
	}
	if !strings.Contains(text, `\`) {
		if text == "" {
			return nil, errors.New("a command is empty")
		}
		return []byte(text), nil
	}
	out, err := strconv.Unquote(`"` + strings.ReplaceAll(text, "\n", `\n`) + `"`)
	if err != nil {
		return nil, fmt.Errorf("command %q has an escape that is none", text)
	}
	return []byte(out), nil
}

// patience is how long a read of n bytes, with what is discarded before, may take.
func (c Config) patience(n int) time.Duration {
	if c.Rate == 0 {
		return c.Timeout
	}
	return c.Timeout + time.Duration(2*float64(n+c.Discard)/c.Rate*float64(time.Second))
}
