package exec

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"qr-gateway/entropy"
)

// Frames, all little-endian; design.md has the tables.
const (
	version     = 1
	magicHello  = "QRXH"
	magicAsk    = "QRXQ"
	magicAnswer = "QRXR"

	helloHeader  = 12
	askSize      = 16
	answerHeader = 28

	maxHello   = 64 << 10 // bytes of the hello's JSON
	maxMessage = 4 << 10  // bytes of an error's text
	maxDevice  = 256      // bytes of a device's name
)

// Status is what a reply says.
type status uint16

const (
	statusOK          status = 0
	statusFailed      status = 1 // the source raised an error; it may be asked again
	statusRefused     status = 2 // asking again is useless
	statusQuota       status = 3
	statusBroken      status = 4 // the source gave something else than it was asked for
	statusUnavailable status = 5 // the source says that it is not available now
)

// kind is what a status means to the one who draws.
func (s status) kind() entropy.Kind {
	switch s {
	case statusRefused:
		return entropy.KindRefused
	case statusQuota:
		return entropy.KindQuota
	case statusBroken:
		return entropy.KindProtocol
	default:
		return entropy.KindTransport
	}
}

// Hello is what a program says of itself when it starts.
type hello struct {
	Name      string            `json:"name"`
	Class     entropy.Class     `json:"class"`    // empty: it doesn't say
	Device    string            `json:"device"`   // empty: it doesn't say
	MaxDraw   int               `json:"max_draw"` // bytes of one request; 0: no limit
	Rate      float64           `json:"rate"`     // bytes per second; 0: unknown
	Available *bool             `json:"available"`
	Details   map[string]string `json:"details"`
}

func (h *hello) check() error {
	switch {
	case h.Name == "" || len(h.Name) > maxDevice:
		return fmt.Errorf("its name is %d bytes long; it must be 1 to %d", len(h.Name), maxDevice)
	case h.Class != "" && !h.Class.Known():
		return fmt.Errorf("its class is %q; it must be jit, buffer, unknown, pool or replay", h.Class)
	case len(h.Device) > maxDevice:
		return fmt.Errorf("its device's name is %d bytes long, more than %d", len(h.Device), maxDevice)
	case h.MaxDraw < 0 || h.MaxDraw > math.MaxInt32:
		return fmt.Errorf("its max_draw is %d", h.MaxDraw)
	case h.Rate < 0:
		return fmt.Errorf("its rate is %v", h.Rate)
	}
	return nil
}

// readHello reads the first frame of a program.
func readHello(r io.Reader) (hello, error) {
	var head [helloHeader]byte
	n, err := io.ReadFull(r, head[:])
	if n >= 4 && string(head[:4]) != magicHello || n > 0 && n < 4 && err != nil {
		return hello{}, fmt.Errorf("its output starts with %q, not with the hello frame; nothing else may be written to standard output", head[:n])
	}
	if err != nil {
		return hello{}, fmt.Errorf("read hello: %w", err)
	}
	if v := binary.LittleEndian.Uint32(head[4:]); v != version {
		return hello{}, fmt.Errorf("it speaks version %d of the frames, not %d", v, version)
	}
	size := binary.LittleEndian.Uint32(head[8:])
	if size > maxHello {
		return hello{}, fmt.Errorf("its hello of %d bytes is longer than %d", size, maxHello)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return hello{}, fmt.Errorf("read hello: %w", err)
	}
	var h hello
	if err := json.Unmarshal(body, &h); err != nil {
		return hello{}, fmt.Errorf("read hello: %w", err)
	}
	return h, h.check()
}

// putAsk writes a request into frame.
func putAsk(frame *[askSize]byte, sequence uint64, count int) {
	copy(frame[:], magicAsk)
	binary.LittleEndian.PutUint64(frame[4:], sequence)
	binary.LittleEndian.PutUint32(frame[12:], uint32(count))
}

// answer is a reply without its payload.
type answer struct {
	device string
	made   time.Time // zero: it doesn't say
}

// replyError is a reply in which the program says no. The stream is still in step.
type replyError struct {
	status  status
	message string
}

func (e *replyError) Error() string { return e.message }

// readAnswer reads the reply to request sequence: its bytes into p, or an error. Only after a *replyError is the stream in step.
// known is the device of the reply before, which saves making the same string again.
func readAnswer(r *bufio.Reader, sequence uint64, p []byte, known string) (answer, error) {
	head, err := r.Peek(answerHeader)
	if err != nil {
		return answer{}, fmt.Errorf("read reply: %w", unexpected(err))
	}
	if string(head[:4]) != magicAnswer {
		return answer{}, fmt.Errorf("no reply frame: %q", head[:4])
	}
	if got := binary.LittleEndian.Uint64(head[4:]); got != sequence {
		return answer{}, fmt.Errorf("the reply to request %d came when %d was asked", got, sequence)
	}
	st := status(binary.LittleEndian.Uint16(head[12:]))
	nDevice := int(binary.LittleEndian.Uint16(head[14:]))
	size := binary.LittleEndian.Uint32(head[16:])
	made := int64(binary.LittleEndian.Uint64(head[20:]))
	if nDevice > maxDevice {
		return answer{}, fmt.Errorf("the device's name of %d bytes is longer than %d", nDevice, maxDevice)
	}
	_, _ = r.Discard(answerHeader) // was peeked
	a := answer{device: known}
	if made != 0 {
		a.made = time.Unix(0, made)
	}
	if err := readDevice(r, nDevice, &a.device); err != nil {
		return answer{}, err
	}
	if st != statusOK {
		return answer{}, readMessage(r, st, size)
	}
	if uint64(size) != uint64(len(p)) {
		return answer{}, fmt.Errorf("a reply of %d bytes came when %d were asked", size, len(p))
	}
	if _, err := io.ReadFull(r, p); err != nil {
		return answer{}, fmt.Errorf("read reply: %w", unexpected(err))
	}
	return a, nil
}

// readDevice reads the device's name, unless it is the one that is in name already.
func readDevice(r *bufio.Reader, size int, name *string) error {
	if size == 0 {
		*name = ""
		return nil
	}
	text, err := r.Peek(size)
	if err != nil {
		return fmt.Errorf("read reply: %w", unexpected(err))
	}
	if string(text) != *name {
		*name = string(text)
	}
	_, _ = r.Discard(size) // was peeked
	return nil
}

// readMessage reads the text of an error.
func readMessage(r io.Reader, st status, size uint32) error {
	if st > statusUnavailable {
		return fmt.Errorf("a reply with unknown status %d", st)
	}
	if size > maxMessage {
		return fmt.Errorf("an error of %d bytes, longer than %d", size, maxMessage)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return fmt.Errorf("read error: %w", unexpected(err))
	}
	return &replyError{st, string(text)}
}

// unexpected makes the end of the stream what it is between frames of a program that runs: an error.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
