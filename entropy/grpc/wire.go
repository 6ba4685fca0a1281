package grpc

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// errWire is wrapped by all errors of messages that are no protobuf.
var errWire = errors.New("malformed message")

// encodeRequest makes the request for a block: count in the schema's unit.
func (f *Fields) encodeRequest(n int, seq int64) []byte {
	count := int64(n)
	if f.CountUnit == "bits" {
		count *= 8
	}
	msg := appendVarint(make([]byte, 0, 24), f.Count, uint64(count))
	return appendVarint(msg, f.Sequence, uint64(seq))
}

// encodeDraw makes the request for a number.
func encodeDraw(seq int64, sourceID string, blockBytes int) []byte {
	msg := appendVarint(make([]byte, 0, 24+len(sourceID)), 1, uint64(seq))
	if sourceID != "" {
		msg = protowire.AppendTag(msg, 2, protowire.BytesType)
		msg = protowire.AppendString(msg, sourceID)
	}
	return appendVarint(msg, 3, uint64(uint32(blockBytes)))
}

// appendVarint leaves zeros out, and fields that the schema does not have.
func appendVarint(msg []byte, field int, v uint64) []byte {
	if field == 0 || v == 0 {
		return msg
	}
	msg = protowire.AppendTag(msg, protowire.Number(field), protowire.VarintType)
	return protowire.AppendVarint(msg, v)
}

// reply is what a server says with a block. data lies in the message.
type reply struct {
	data   []byte
	echo   int64
	time   time.Time
	device string
	odd    string // a field with another wire type than declared, for the message of an error
}

// walk calls visit with each field of a message: its number, wire type, and what the value is. It accepts exactly what protobuf does.
func walk(msg []byte, visit func(num protowire.Number, typ protowire.Type, value []byte) error) error {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return fmt.Errorf("%w: field tag: %w", errWire, protowire.ParseError(n))
		}
		if num > protowire.MaxValidNumber {
			return fmt.Errorf("%w: field number %d", errWire, num)
		}
		msg = msg[n:]
		n = protowire.ConsumeFieldValue(num, typ, msg)
		if n < 0 {
			return fmt.Errorf("%w: field %d: %w", errWire, num, protowire.ParseError(n))
		}
		if err := visit(num, typ, msg[:n]); err != nil {
			return err
		}
		msg = msg[n:]
	}
	return nil
}

// decode reads a reply. As protobuf has it, the last of several values wins, and a field of another wire type is one that is not known;
// that is noted, since it most likely means that the fields are declared wrongly.
func (f *Fields) decode(msg []byte) (reply, error) {
	var r reply
	err := walk(msg, func(num protowire.Number, typ protowire.Type, value []byte) error {
		switch int(num) {
		case f.Data:
			if b, ok := bytesOf(typ, value); ok {
				r.data = b
				return nil
			}
		case f.Echo:
			if v, ok := integer(f.EchoType, typ, value); ok {
				r.echo = int64(v)
				return nil
			}
		case f.Time:
			if t, ok := f.timeOf(typ, value); ok {
				r.time = t
				return nil
			}
		case f.Device:
			if b, ok := bytesOf(typ, value); ok {
				r.device = string(b)
				return checkText(num, b)
			}
		default:
			return nil
		}
		r.odd = fmt.Sprintf("field %d has wire type %d, which is not what was declared", num, typ)
		return nil
	})
	return r, err
}

// echoOf reads the echo alone.
func (f *Fields) echoOf(msg []byte) (echo int64, err error) {
	err = walk(msg, func(num protowire.Number, typ protowire.Type, value []byte) error {
		if int(num) == f.Echo {
			if v, ok := integer(f.EchoType, typ, value); ok {
				echo = int64(v)
			}
		}
		return nil
	})
	return echo, err
}

func (f *Fields) timeOf(typ protowire.Type, value []byte) (time.Time, bool) {
	if f.TimeType == "double" {
		v, n := protowire.ConsumeFixed64(value)
		s := math.Float64frombits(v)
		if typ != protowire.Fixed64Type || n < 0 || !(math.Abs(s) < 1<<33) {
			return time.Time{}, false
		}
		whole, part := math.Modf(s * f.unit().Seconds())
		return time.Unix(int64(whole), int64(part*1e9)), true
	}
	v, ok := integer(f.TimeType, typ, value)
	switch {
	case !ok:
		return time.Time{}, false
	case int64(v) == 0:
		return time.Time{}, true
	}
	per := int64(time.Second / f.unit())
	return time.Unix(int64(v)/per, int64(v)%per*int64(f.unit())), true
}

func (f *Fields) unit() time.Duration {
	switch f.TimeUnit {
	case "us":
		return time.Microsecond
	case "ms":
		return time.Millisecond
	case "s":
		return time.Second
	}
	return time.Nanosecond
}

func bytesOf(typ protowire.Type, value []byte) ([]byte, bool) {
	if typ != protowire.BytesType {
		return nil, false
	}
	b, _ := protowire.ConsumeBytes(value)
	return b, true
}

// integer reads a number of the declared type, which is varint unless told otherwise.
func integer(declared string, typ protowire.Type, value []byte) (uint64, bool) {
	switch {
	case declared == "fixed64" && typ == protowire.Fixed64Type:
		v, n := protowire.ConsumeFixed64(value)
		return v, n > 0
	case declared != "fixed64" && typ == protowire.VarintType:
		v, n := protowire.ConsumeVarint(value)
		return v, n > 0
	}
	return 0, false
}

func checkText(num protowire.Number, b []byte) error {
	if !utf8.Valid(b) {
		return fmt.Errorf("%w: field %d is not valid UTF-8", errWire, num)
	}
	return nil
}

// drawReply is what a server says with a number.
type drawReply struct {
	u, z       float64
	echo       int64
	timeNS     uint64
	sourceID   string
	coherenceZ float64
	coherenceR float64
	coherent   bool
	purity     string
	bytes      uint32
	integrator string
}

// decodeDraw reads the reply of the published protocol.
func decodeDraw(msg []byte) (drawReply, error) {
	var r drawReply
	err := walk(msg, func(num protowire.Number, typ protowire.Type, value []byte) error {
		switch typ {
		case protowire.Fixed64Type:
			v, _ := protowire.ConsumeFixed64(value)
			r.setDouble(num, math.Float64frombits(v))
		case protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			r.setInteger(num, v)
		case protowire.BytesType:
			b, _ := protowire.ConsumeBytes(value)
			return r.setText(num, b)
		default:
		}
		return nil
	})
	return r, err
}

func (r *drawReply) setDouble(num protowire.Number, v float64) {
	switch num {
	case 1:
		r.u = v
	case 2:
		r.z = v
	case 6:
		r.coherenceZ = v
	case 11:
		r.coherenceR = v
	default:
	}
}

func (r *drawReply) setInteger(num protowire.Number, v uint64) {
	switch num {
	case 3:
		r.echo = int64(v)
	case 4:
		r.timeNS = v
	case 7:
		r.coherent = v != 0
	case 9:
		r.bytes = uint32(v)
	default:
	}
}

func (r *drawReply) setText(num protowire.Number, b []byte) error {
	var to *string
	switch num {
	case 5:
		to = &r.sourceID
	case 8:
		to = &r.purity
	case 10:
		to = &r.integrator
	default:
		return nil
	}
	*to = string(b)
	return checkText(num, b)
}

// drawEcho reads the echo of a number's reply alone.
func drawEcho(msg []byte) (int64, error) {
	r, err := decodeDraw(msg)
	return r.echo, err
}
