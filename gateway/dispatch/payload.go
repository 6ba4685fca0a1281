package dispatch

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"qr-gateway/backends"
)

// payload is a prepared request as the queue carries it. The prompt's tokens are packed: as JSON numbers a long prompt
// would take ten times as long.
type payload struct {
	Prepared backends.Prepared `json:"prepared"` // without its tokens
	Tokens   []byte            `json:"tokens"`   // four bytes each, little-endian
}

// Pack turns a prepared request into what a queue carries.
func Pack(p *backends.Prepared) ([]byte, error) {
	w := payload{Prepared: *p, Tokens: make([]byte, 0, 4*len(p.Tokens))}
	w.Prepared.Tokens = nil
	for _, t := range p.Tokens {
		w.Tokens = binary.LittleEndian.AppendUint32(w.Tokens, uint32(t))
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // what is passed on stays as the client wrote it
	if err := enc.Encode(w); err != nil {
		return nil, fmt.Errorf("pack request: %w", err)
	}
	return out.Bytes(), nil
}

// Unpack turns it back.
func Unpack(data []byte) (*backends.Prepared, error) {
	var w payload
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, fmt.Errorf("unpack request: %w", err)
	}
	if w.Prepared.Request == nil || len(w.Tokens)%4 != 0 {
		return nil, errors.New("unpack request: it is not whole")
	}
	p := w.Prepared
	p.Tokens = make([]int32, 0, len(w.Tokens)/4)
	for b := w.Tokens; len(b) > 0; b = b[4:] {
		p.Tokens = append(p.Tokens, int32(binary.LittleEndian.Uint32(b)))
	}
	return &p, nil
}
