package exec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"qr-gateway/entropy"
)

// How a program hands out its bytes.
const (
	FramingFrames = "frames" // on request, see design.md
	FramingRaw    = "raw"    // it writes bytes all the time; they are older than the request for them
)

// maxShot bounds one request, in bytes.
const maxShot = 16 << 20

// Config says which program to run and how long it may take. Exactly one of Command, PythonClass and PythonEntryPoint is set.
type Config struct {
	Command []string `mapstructure:"command"` // program and arguments, run without a shell; the program is an absolute path or found in PATH

	// A class with name, is_available, get_random_bytes and close, which the Python host runs.
	PythonClass      string `mapstructure:"python_class"`       // MODULE:CLASS
	PythonEntryPoint string `mapstructure:"python_entry_point"` // a name in the group qr_sampler.entropy_sources
	PythonConfig     string `mapstructure:"python_config"`      // a JSON object for its constructor
	Python           string `mapstructure:"python"`             // the interpreter, a path or a name

	Dir     string   `mapstructure:"dir"`     // working directory; empty: the gateway's own
	Env     []string `mapstructure:"env"`     // NAME=value, added to the gateway's environment
	Framing string   `mapstructure:"framing"` // frames or raw

	Class   entropy.Class `mapstructure:"class"`    // empty: what the program says, else unknown; raw is always pool unless it is replay
	MaxDraw int           `mapstructure:"max_draw"` // most bytes of one request; 0: what the program says; longer draws take several

	StartTimeout time.Duration `mapstructure:"start_timeout"` // from the start to the hello
	Timeout      time.Duration `mapstructure:"timeout"`       // of one request
	Grace        time.Duration `mapstructure:"grace"`         // to end after stdin is closed, and again after SIGTERM
	BackoffMin   time.Duration `mapstructure:"backoff_min"`   // pause before the second start in a row; the first is at once
	BackoffMax   time.Duration `mapstructure:"backoff_max"`
}

// DefaultConfig returns the default times. A command or class is still to be set.
func DefaultConfig() Config {
	return Config{
		Framing:      FramingFrames,
		Python:       "python3",
		StartTimeout: 30 * time.Second,
		Timeout:      5 * time.Second,
		Grace:        2 * time.Second,
		BackoffMin:   100 * time.Millisecond,
		BackoffMax:   10 * time.Second,
	}
}

// Opening is how long a source may take to open.
func (c Config) Opening() time.Duration {
	if c.Framing == FramingRaw {
		return 0 // it says no hello
	}
	return c.StartTimeout
}

// Validate reports the first option that can't be used.
func (c Config) Validate() error {
	return errors.Join(c.validateProgram(), c.validateClass(), c.validateNumbers())
}

func (c Config) validateProgram() error {
	given := 0
	for _, set := range []bool{len(c.Command) > 0, c.PythonClass != "", c.PythonEntryPoint != ""} {
		if set {
			given++
		}
	}
	switch {
	case given != 1:
		return fmt.Errorf("%d of command, python_class and python_entry_point are set: give one", given)
	case c.PythonClass != "" && !classSpec(c.PythonClass):
		return fmt.Errorf("python_class is %q; it must be MODULE:CLASS", c.PythonClass)
	case strings.HasPrefix(c.PythonEntryPoint, "-"):
		return fmt.Errorf("python_entry_point is %q; it must be a name", c.PythonEntryPoint)
	case c.PythonConfig != "" && !json.Valid([]byte(c.PythonConfig)):
		return errors.New("python_config is no JSON; it must be an object") // its text may hold a secret
	case c.Framing != FramingFrames && (c.Framing != FramingRaw || !c.isCommand()):
		return fmt.Errorf("framing is %q; it must be frames, or raw for a command", c.Framing)
	}
	return c.validateText()
}

// isCommand reports whether a program is run as it is, and not the Python host.
func (c Config) isCommand() bool { return len(c.Command) > 0 }

func (c Config) validateText() error {
	for _, text := range slices.Concat(c.Command, c.Env, []string{c.Dir, c.PythonConfig, c.PythonClass, c.PythonEntryPoint}) {
		if strings.ContainsRune(text, 0) {
			return errors.New("an option or environment entry holds a zero byte")
		}
	}
	for i, e := range c.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			return fmt.Errorf("env: entry %d is not NAME=value", i+1) // its text may be a secret
		}
	}
	return nil
}

// classSpec reports whether text has a module, a colon and a class, and is no option.
func classSpec(text string) bool {
	module, class, ok := strings.Cut(text, ":")
	return ok && module != "" && class != "" && !strings.HasPrefix(text, "-")
}

func (c Config) validateClass() error {
	if c.Class != "" && !c.Class.Known() {
		return fmt.Errorf("class is %q; it must be jit, buffer, unknown, pool or replay", c.Class)
	}
	if c.Framing == FramingRaw && c.Class != "" && c.Class != entropy.ClassPool && c.Class != entropy.ClassReplay {
		return fmt.Errorf("class is %q; with framing raw it must be pool or replay, since bytes wait in the pipe", c.Class)
	}
	return nil
}

func (c Config) validateNumbers() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"start_timeout", c.StartTimeout},
		{"timeout", c.Timeout},
		{"grace", c.Grace},
		{"backoff_min", c.BackoffMin},
		{"backoff_max", c.BackoffMax},
	} {
		if d.value <= 0 || d.value > time.Hour {
			return fmt.Errorf("%s is %v; it must be over 0 and at most 1h", d.name, d.value)
		}
	}
	switch {
	case c.BackoffMax < c.BackoffMin:
		return fmt.Errorf("backoff_max is %v, less than backoff_min, %v", c.BackoffMax, c.BackoffMin)
	case c.MaxDraw < 0 || c.MaxDraw > maxShot:
		return fmt.Errorf("max_draw is %d; it must be 0 to %d bytes", c.MaxDraw, maxShot)
	}
	return nil
}

// findProgram returns the path of a program that can be run. A relative path would depend on the working directory.
func findProgram(name string) (string, error) {
	if !strings.ContainsRune(name, filepath.Separator) {
		path, err := osexec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("find program %s in PATH: %w", name, errors.Unwrap(err))
		}
		return path, nil
	}
	if !filepath.IsAbs(name) {
		return "", fmt.Errorf("program %s: a relative path; give an absolute one, or a name found in PATH", name)
	}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("program %s does not exist", name)
	case err != nil:
		return "", fmt.Errorf("look at program %s: %w", name, err)
	case info.IsDir():
		return "", fmt.Errorf("program %s is a directory", name)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("program %s is no regular file (%v)", name, info.Mode().Type())
	case unix.Access(name, unix.X_OK) != nil:
		return "", fmt.Errorf("program %s is not executable; chmod +x it", name)
	}
	return name, nil
}

// checkDir refuses a working directory that is none.
func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at working directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("working directory %s is no directory", dir)
	}
	return nil
}
