package device

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"qr-gateway/entropy"
)

// reopenPause is how long after a failed attempt the device is looked for again, by the next draw.
const reopenPause = 500 * time.Millisecond

// call is a draw. The owner fills data and sends one result; a caller that has gone leaves both to it.
type call struct {
	data []byte
	done chan result // holds one
}

type result struct {
	device string
	shots  int
	err    error // an *entropy.Error
}

// owner has the device. Its state is in design.md.
type owner struct {
	cfg    Config
	source string
	log    *slog.Logger
	sys    string
	open   func(Config) (port, error)
	calls  <-chan *call
	busy   *atomic.Int64

	port   port // nil: it is not open
	device string
	unsure bool      // a QCicada may still send answers to what failed
	again  time.Time // it is not opened before
	why    error     // it was not opened
	waste  []byte    // for bytes that are thrown away
}

// run serves calls until ctx ends.
func (o *owner) run(ctx context.Context) {
	defer o.disconnect()
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-o.calls:
			c.done <- o.serve(ctx, c.data)
		}
	}
}

// connect opens the device and sets it up.
func (o *owner) connect() error {
	p, err := o.open(o.cfg)
	if err != nil {
		return err
	}
	o.port, o.device, o.unsure = p, "", false
	if o.cfg.Protocol == ProtocolQCicada {
		o.device, err = setUpQCicada(p, o.expect(0))
		o.busy.Store(0)
	}
	if err == nil && o.cfg.CheckRNG {
		_, err = o.rng()
	}
	if err != nil {
		o.disconnect()
	}
	return err
}

// disconnect lets the device go.
func (o *owner) disconnect() {
	if o.port == nil {
		return
	}
	if err := o.port.Close(); err != nil {
		o.log.Warn("closing the device failed", "error", err.Error())
	}
	o.port = nil
}

// expect sets until when the port's next reads may take, and when they are overdue.
func (o *owner) expect(n int) (due time.Time) {
	due = time.Now().Add(o.cfg.patience(n))
	o.port.SetDeadline(due)
	o.busy.Store(due.Add(slack).UnixNano())
	return due
}

// serve answers one call.
func (o *owner) serve(ctx context.Context, data []byte) result {
	defer o.busy.Store(0)
	if ctx.Err() != nil {
		return result{err: closedError(o.source)}
	}
	if err := o.ready(); err != nil {
		return result{err: err}
	}
	limit := len(data)
	if o.cfg.MaxDraw > 0 {
		limit = min(limit, o.cfg.MaxDraw)
	}
	shots := 0
	for ; len(data) > 0; shots++ {
		n := min(len(data), limit)
		if err := o.read(data[:n], o.expect(n)); err != nil {
			return result{err: o.explain(err)}
		}
		data = data[n:]
	}
	return result{device: o.device, shots: shots}
}

// ready makes sure that the device is open, unless it is too early to look for it.
func (o *owner) ready() error {
	if o.port != nil {
		return nil
	}
	wait := time.Until(o.again)
	if wait <= 0 {
		o.why = o.connect()
		if o.why == nil {
			o.log.Info("the device is back", "path", o.cfg.Path)
			return nil
		}
		o.again = time.Now().Add(reopenPause)
	}
	return &entropy.Error{Kind: entropy.KindTransport, Source: o.source, Message: "the device is not there", Err: o.why, Hint: "plug it in; it is looked for with each draw"}
}

// explain makes the error of a draw. A device that has gone is let go.
func (o *owner) explain(err error) error {
	e := &entropy.Error{Kind: entropy.KindTransport, Source: o.source, Message: "read device", Err: err}
	switch {
	case errors.Is(err, errInterrupted):
		return closedError(o.source)
	case errors.Is(err, errGone):
		o.log.Warn("the device is gone", "path", o.cfg.Path, "error", err.Error())
		o.disconnect()
		o.again, o.why = time.Now(), err
	case errors.Is(err, os.ErrDeadlineExceeded):
		e.Kind, e.Hint = entropy.KindTimeout, "check the device and its speed; raise timeout, or set rate"
	case errors.Is(err, errNack):
		e.Kind = entropy.KindRefused
	case errors.Is(err, errTests):
		e.Kind = entropy.KindHealth
	case errors.Is(err, errAnswer), errors.Is(err, errChanged):
		e.Kind = entropy.KindProtocol
	}
	return e
}

// read fills p with bytes that were not there before. Any step that fails fails the draw.
func (o *owner) read(p []byte, due time.Time) error {
	if o.cfg.Protocol == ProtocolQCicada {
		return o.measure(p, due)
	}
	var before string
	var err error
	if o.cfg.CheckRNG {
		if before, err = o.rng(); err != nil {
			return err
		}
		o.device = o.cfg.Path + ":" + before
	}
	if err := o.prepare(); err != nil {
		return errors.Join(err, o.settle())
	}
	if _, err := io.ReadFull(o.port, p); err != nil {
		return errors.Join(fmt.Errorf("read %d bytes: %w", len(p), err), o.settle())
	}
	if err := o.settle(); err != nil {
		return err
	}
	if !o.cfg.CheckRNG {
		return nil
	}
	after, err := o.rng()
	if err == nil && after != before {
		err = fmt.Errorf("%w from %s to %s during the read", errChanged, before, after)
	}
	return err
}

// measure has a QCicada make the bytes. After a failure its answers may be out of step, so it is quietened first.
func (o *owner) measure(p []byte, due time.Time) error {
	if o.unsure {
		if err := quieten(o.port, due); err != nil {
			return err
		}
	}
	err := readQCicada(o.port, p)
	o.unsure = err != nil
	return err
}

// prepare gets rid of everything that waits, and starts the device.
func (o *owner) prepare() error {
	if err := o.say(o.cfg.Stop); err != nil {
		return err
	}
	if o.cfg.Flush {
		if err := o.port.Flush(); err != nil {
			return err
		}
	}
	if err := o.say(o.cfg.Start); err != nil {
		return err
	}
	if o.cfg.DTR == DTRGate {
		if err := o.port.SetDTR(true); err != nil {
			return err
		}
	}
	waits, err := o.waiting()
	if err != nil {
		return err
	}
	return o.discard(waits + o.cfg.Discard)
}

// settle stops the device after a read.
func (o *owner) settle() error {
	err := o.say(o.cfg.Stop)
	if o.cfg.DTR == DTRGate {
		err = errors.Join(err, o.port.SetDTR(false))
	}
	return err
}

func (o *owner) say(commands []string) error {
	for _, text := range commands {
		b, err := command(text)
		if err == nil {
			_, err = o.port.Write(b)
		}
		if err != nil {
			return fmt.Errorf("write command %q: %w", text, err)
		}
	}
	return nil
}

// waiting returns how many bytes wait in the driver.
func (o *owner) waiting() (int, error) {
	if o.cfg.ReadyFile == "" {
		return 0, nil
	}
	text, err := o.readSys(o.cfg.ReadyFile)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 31)
	unit := max(1, o.cfg.ReadyUnit)
	if err != nil || n > uint64(maxDraw/unit) {
		return 0, fmt.Errorf("the count in %s is %.40q", o.cfg.ReadyFile, text)
	}
	return int(n) * unit, nil
}

func (o *owner) discard(n int) error {
	for left := n; left > 0; {
		o.waste = resize(o.waste, min(left, 4096))
		if _, err := io.ReadFull(o.port, o.waste); err != nil {
			return fmt.Errorf("throw %d bytes away: %w", n, err)
		}
		left -= len(o.waste)
	}
	return nil
}

// errChanged says that the kernel has put another generator behind the device.
var errChanged = errors.New("the kernel's source of the device has changed")

const rngCurrent = "/sys/class/misc/hw_random/rng_current"

// rng returns the name of the generator behind hwrng.
func (o *owner) rng() (string, error) {
	name, err := o.readSys(rngCurrent)
	switch {
	case err != nil:
		return "", err
	case name == "" || name == "none":
		return "", fmt.Errorf("%s names no source; load the driver of one", rngCurrent)
	case o.cfg.RNG != "" && name != o.cfg.RNG:
		return "", fmt.Errorf("%w: it is %q, not %q", errChanged, name, o.cfg.RNG)
	}
	return name, nil
}

// readSys reads a short file of sysfs.
func (o *owner) readSys(path string) (string, error) {
	text, err := os.ReadFile(filepath.Join(o.sys, strings.TrimPrefix(filepath.Clean(path), "/sys/")))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return strings.TrimSpace(string(text)), nil
}
