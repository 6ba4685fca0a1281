package dispatch

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"qr-gateway/backends"
)

// Logged is a stretch of a run's frames as the log of its job has it.
type Logged struct {
	First int64 // of the frames; Frame.Seq is the last
	Frame Frame // all of them together, as one
	Said  *Said // what was said before the run; then there is no frame
}

// Kinds of entry, the first byte of each.
const (
	entryCopy byte = 'c' // what was sent to the gateway as well
	entryOnly byte = 'o' // what goes through the log alone
)

// Kinds of what an entry holds: a byte, the numbers of the first and the last frame and the length as uvarints, then the data.
const (
	kindEvent  byte = 'e' // JSON
	kindRaw    byte = 'w' // an event that is nothing but Raw, as it is: as a part of JSON its spaces would be lost
	kindResult byte = 'r' // JSON
	kindError  byte = 'x' // JSON
	kindSaid   byte = 's' // JSON
)

// StartEntry begins an entry of a log. only says that what is in it goes through the log alone.
func StartEntry(dst []byte, only bool) []byte {
	if only {
		return append(dst, entryOnly)
	}
	return append(dst, entryCopy)
}

// AppendLogged adds a stretch of frames to an entry.
func AppendLogged(dst []byte, l Logged) ([]byte, error) {
	kind, data, err := l.encode()
	if err != nil {
		return dst, fmt.Errorf("encode frame %d of job %s for its log: %w", l.Frame.Seq, l.Frame.Job, err)
	}
	dst = append(dst, kind)
	dst = binary.AppendUvarint(dst, uint64(l.First))
	dst = binary.AppendUvarint(dst, uint64(l.Frame.Seq))
	dst = binary.AppendUvarint(dst, uint64(len(data)))
	return append(dst, data...), nil
}

func (l *Logged) encode() (kind byte, data []byte, err error) {
	switch f := &l.Frame; {
	case l.Said != nil:
		kind = kindSaid
		data, err = marshal(l.Said)
	case f.Err != nil:
		kind = kindError
		data, err = marshal(backends.FailureOf(f.Err))
	case f.Result != nil:
		kind = kindResult
		data, err = marshal(f.Result)
	case rawAlone(&f.Event):
		return kindRaw, f.Event.Raw, nil
	default:
		kind = kindEvent
		data, err = marshal(f.Event)
	}
	return kind, data, err
}

// rawAlone says that an event is nothing but Raw.
func rawAlone(e *backends.Event) bool {
	return len(e.Raw) > 0 && e.Started == nil && e.Content == "" && e.Reasoning == "" && len(e.Tokens) == 0
}

// errEntry is of an entry that this program has not written.
var errEntry = errors.New("an entry of the log is not whole")

// ParseEntry reads an entry of the log of a job. only is what [StartEntry] was told.
func ParseEntry(job string, epoch int64, data []byte) (all []Logged, only bool, err error) {
	if len(data) == 0 || data[0] != entryCopy && data[0] != entryOnly {
		return nil, false, errEntry
	}
	only = data[0] == entryOnly
	for data = data[1:]; len(data) > 0; {
		var l Logged
		if l, data, err = parseLogged(data); err != nil {
			return nil, only, err
		}
		l.Frame.Job, l.Frame.Epoch = job, epoch
		all = append(all, l)
	}
	return all, only, nil
}

func parseLogged(data []byte) (l Logged, rest []byte, err error) {
	kind, data := data[0], data[1:]
	var numbers [3]uint64
	for i := range numbers {
		n, size := binary.Uvarint(data)
		if size <= 0 || n > 1<<62 {
			return l, nil, errEntry
		}
		numbers[i], data = n, data[size:]
	}
	first, last, size := int64(numbers[0]), int64(numbers[1]), numbers[2]
	if first > last || size > uint64(len(data)) {
		return l, nil, errEntry
	}
	l.First, l.Frame.Seq = first, last
	return l, data[size:], l.decode(kind, data[:size])
}

func (l *Logged) decode(kind byte, data []byte) error {
	f := &l.Frame
	var err error
	switch kind {
	case kindSaid:
		l.Said = new(Said)
		err = json.Unmarshal(data, l.Said)
	case kindError:
		var w backends.Failure
		err = json.Unmarshal(data, &w)
		f.Err = w.Unpack()
	case kindResult:
		f.Result = new(backends.Result)
		err = json.Unmarshal(data, f.Result)
	case kindRaw:
		f.Event.Raw = data
	case kindEvent:
		err = json.Unmarshal(data, &f.Event)
	default:
		err = errEntry
	}
	if err != nil {
		return fmt.Errorf("decode frame %d from the log: %w", f.Seq, err)
	}
	return nil
}
