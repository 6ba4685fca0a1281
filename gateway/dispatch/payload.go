package dispatch

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"qr-gateway/backends"
)

// Work is what a node gets of a job.
type Work struct {
	Prepared *backends.Prepared
	// Log has the node keep what the run sends in the queue's log of the job, for those who repeat the request.
	Log bool
	// Said is the text that Prepared.Delivered has made, where another worker takes an answer up that has a log.
	Said *Said
}

// Said is text that the client of an answer has.
type Said struct {
	Content   string  `json:"content,omitempty"`
	Reasoning string  `json:"reasoning,omitempty"`
	Tokens    []int32 `json:"tokens,omitempty"` // that made it
}

// payload is a prepared request as the queue carries it. The prompt's tokens are packed: as JSON numbers a long prompt
// would take ten times as long.
type payload struct {
	Prepared backends.Prepared `json:"prepared"` // without its tokens
	Tokens   []byte            `json:"tokens"`   // four bytes each, little-endian
	Log      bool              `json:"log,omitempty"`
	Said     *Said             `json:"said,omitempty"`
}

// Pack turns a prepared request into what a queue carries.
func Pack(p *backends.Prepared) ([]byte, error) { return Work{Prepared: p}.Pack() }

// Pack turns a node's work into what a queue carries.
func (w Work) Pack() ([]byte, error) {
	p := payload{Prepared: *w.Prepared, Tokens: make([]byte, 0, 4*len(w.Prepared.Tokens)), Log: w.Log, Said: w.Said}
	p.Prepared.Tokens = nil
	for _, t := range w.Prepared.Tokens {
		p.Tokens = binary.LittleEndian.AppendUint32(p.Tokens, uint32(t))
	}
	out, err := marshal(p)
	if err != nil {
		return nil, fmt.Errorf("pack request: %w", err)
	}
	return out, nil
}

// marshal makes JSON in which what is passed on stays as the client wrote it.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return out.Bytes(), err
}

// Unpack turns a prepared request back.
func Unpack(data []byte) (*backends.Prepared, error) {
	w, err := UnpackWork(data)
	return w.Prepared, err
}

// UnpackWork turns a node's work back.
func UnpackWork(data []byte) (Work, error) {
	var in payload
	if err := json.Unmarshal(data, &in); err != nil {
		return Work{}, fmt.Errorf("unpack request: %w", err)
	}
	if in.Prepared.Request == nil || len(in.Tokens)%4 != 0 {
		return Work{}, errors.New("unpack request: it is not whole")
	}
	p := in.Prepared
	p.Tokens = make([]int32, 0, len(in.Tokens)/4)
	for b := in.Tokens; len(b) > 0; b = b[4:] {
		p.Tokens = append(p.Tokens, int32(binary.LittleEndian.Uint32(b)))
	}
	return Work{Prepared: &p, Log: in.Log, Said: in.Said}, nil
}
