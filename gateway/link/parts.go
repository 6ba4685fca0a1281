package link

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"qr-gateway/gateway/link/linkpb"
)

// checkSize refuses a message that the other side wouldn't take.
func checkSize(what string, m proto.Message, most int) error {
	if n := proto.Size(m); n > most {
		return fmt.Errorf("%w: %s has %d bytes, and %d may be sent: raise max_message on both machines", ErrTooLarge, what, n, most)
	}
	return nil
}

// cutter holds the rest of a message that is being sent in parts.
type cutter struct{ rest []byte }

// begin takes a message, and reports that it is to be sent in parts.
func (c *cutter) begin(m proto.Message) (cut bool, err error) {
	if proto.Size(m) <= partSize {
		return false, nil
	}
	c.rest, err = proto.Marshal(m)
	return true, err
}

// next is the next part, or nil.
func (c *cutter) next() *linkpb.Part {
	if len(c.rest) == 0 {
		return nil
	}
	n := min(len(c.rest), partSize)
	p := &linkpb.Part{Data: c.rest[:n], Last: n == len(c.rest)}
	c.rest = c.rest[n:]
	return p
}

// joiner puts the parts of one message together.
type joiner struct {
	most  int
	parts []byte
}

// add returns the message once p is its last part.
func (j *joiner) add(p *linkpb.Part) ([]byte, error) {
	if len(j.parts)+len(p.Data) > j.most {
		return nil, fmt.Errorf("%w: more than %d bytes came: set max_message alike on both machines", ErrTooLarge, j.most)
	}
	j.parts = append(j.parts, p.Data...)
	if !p.Last {
		return nil, nil
	}
	whole := j.parts
	j.parts = nil
	if len(whole) == 0 {
		return nil, errors.New("an empty message came in parts")
	}
	return whole, nil
}
