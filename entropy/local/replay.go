package local

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/regular"
)

// The forms of a recording.
const (
	FormatRaw = "raw"
	FormatHex = "hex"
)

// maxHexFile bounds a recording in hexadecimal digits, which is held in memory.
const maxHexFile = 256 << 20

// ReplayConfig names a recording.
type ReplayConfig struct {
	// Path of a regular file.
	Path string `mapstructure:"path"`
	// Format is raw bytes, or hex: digits with any white space between bytes.
	Format string `mapstructure:"format"`
	// Offset is how many bytes of the recording are skipped.
	Offset int64 `mapstructure:"offset"`
}

// DefaultReplayConfig reads raw bytes from the start.
func DefaultReplayConfig() ReplayConfig { return ReplayConfig{Format: FormatRaw} }

// Validate names the option that can't be used.
func (c ReplayConfig) Validate() error {
	switch {
	case c.Path == "":
		return errors.New("path is empty: name the file with the recorded bytes")
	case c.Format != FormatRaw && c.Format != FormatHex:
		return fmt.Errorf("format is %q, want raw or hex", c.Format)
	case c.Offset < 0:
		return fmt.Errorf("offset is %d, want 0 or more bytes", c.Offset)
	}
	return nil
}

// Replay hands out recorded bytes, each once. At the end of the recording draws fail: it never starts again from the front.
type Replay struct {
	name string
	cfg  ReplayConfig
	data io.ReaderAt
	file *os.File
	size int64

	mu     sync.Mutex // guards what follows
	at     int64
	seq    uint64
	closed bool
}

// OpenReplay opens the recording. What is not a regular file is refused before it is opened, since a pipe or device would wait.
func OpenReplay(_ context.Context, name string, cfg ReplayConfig) (*Replay, error) {
	if err := cfg.Validate(); err != nil {
		return nil, badOption(name, err)
	}
	r := &Replay{name: name, cfg: cfg, at: cfg.Offset}
	if err := r.open(); err != nil {
		return nil, &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "open recording", Hint: "path must be a regular file of recorded bytes", Err: errors.Join(err, r.Close())}
	}
	return r, nil
}

func (r *Replay) open() error {
	f, info, err := regular.Open(r.cfg.Path)
	if err != nil {
		return err
	}
	r.file, r.data, r.size = f, f, info.Size()
	if r.cfg.Format == FormatHex {
		if err := r.loadHex(); err != nil {
			return err
		}
	}
	if r.cfg.Offset >= r.size {
		return fmt.Errorf("offset is %d, but %s has %d bytes", r.cfg.Offset, r.cfg.Path, r.size)
	}
	return nil
}

func (r *Replay) loadHex() error {
	if r.size > maxHexFile {
		return fmt.Errorf("%s has %d bytes, a recording in hex may have %d: convert it to raw bytes", r.cfg.Path, r.size, maxHexFile)
	}
	text, err := io.ReadAll(io.LimitReader(r.file, maxHexFile))
	if err != nil {
		return fmt.Errorf("read %s: %w", r.cfg.Path, err)
	}
	raw, err := parseHex(text)
	if err != nil {
		return fmt.Errorf("read %s: %w", r.cfg.Path, err)
	}
	r.data, r.size = bytes.NewReader(raw), int64(len(raw))
	return nil
}

// parseHex reads pairs of digits with any white space between the pairs.
func parseHex(text []byte) ([]byte, error) {
	out := make([]byte, 0, len(text)/2)
	for _, word := range bytes.Fields(text) {
		n := len(out)
		out = out[:n+hex.DecodedLen(len(word))]
		if _, err := hex.Decode(out[n:], word); err != nil {
			return nil, fmt.Errorf("after %d bytes: %w", n, err)
		}
	}
	return out, nil
}

// Draw implements [entropy.Source].
func (r *Replay) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	if err := ended(ctx, r.name, len(buf)); err != nil {
		return entropy.Block{}, err
	}
	asked := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return entropy.Block{}, &entropy.Error{Kind: entropy.KindClosed, Source: r.name, Message: "the source is closed"}
	}
	if left := r.size - r.at; int64(len(buf)) > left {
		return entropy.Block{}, &entropy.Error{
			Kind: entropy.KindRefused, Source: r.name, Message: fmt.Sprintf("the recording has %d bytes left, %d are asked for", left, len(buf)),
			Hint: "use a longer recording or fewer bytes per token", Err: io.EOF,
		}
	}
	if _, err := r.data.ReadAt(buf, r.at); err != nil && len(buf) > 0 && !r.complete(err, len(buf)) {
		return entropy.Block{}, &entropy.Error{Kind: entropy.KindTransport, Source: r.name, Message: "read recording", Err: err}
	}
	r.at += int64(len(buf))
	r.seq++
	return entropy.Block{
		Bytes: buf, Source: r.name, Device: r.cfg.Path, Requested: asked, Arrived: time.Now(), Sequence: r.seq, Class: entropy.ClassReplay,
	}, nil
}

// complete says that a read came with io.EOF only because it ended exactly at the end.
func (r *Replay) complete(err error, n int) bool {
	return errors.Is(err, io.EOF) && r.at+int64(n) == r.size && r.cfg.Format == FormatHex
}

// Probe implements [entropy.Prober].
func (r *Replay) Probe(context.Context) (entropy.Capabilities, error) {
	return entropy.Capabilities{Device: r.cfg.Path, Class: entropy.ClassReplay, MaxDraw: int(r.size)}, nil
}

// Close implements io.Closer.
func (r *Replay) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.file == nil {
		return nil
	}
	r.closed = true
	return r.file.Close()
}
