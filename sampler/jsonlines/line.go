package jsonlines

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Line is one token to choose.
type Line struct {
	// Stream names the answer that the line belongs to. Lines of one stream go on from each other; a line without one stands alone.
	Stream string         `json:"stream"`
	Params map[string]any `json:"params"` // by their qr_ keys, or standard names; of a stream, in its first line
	Logits Logits         `json:"logits"`
	Banned []int32        `json:"banned"` // never chosen
	Prompt []int32        `json:"prompt"` // for the repetition penalty; of a stream, in its first line
	// History are the tokens of the answer before this one, so that a line that stands alone can have them.
	History []Step `json:"history"`

	// What the number is made of; at most one. With none, a choice that leaves something to chance needs qr_seed.
	Bytes  *Hex     `json:"bytes"`
	U      *float64 `json:"u"` // strictly between 0 and 1
	Number *Number  `json:"number"`

	// Calibration is what the source was measured to be, for bytes.
	Calibration *Calibration `json:"calibration"`
}

// Step is a token of the past.
type Step struct {
	Logits Logits  `json:"logits"` // that it was chosen from
	Token  int32   `json:"token"`
	Number *Number `json:"number"` // where a server made its number
}

// Number is what an entropy server said of a number of its own.
type Number struct {
	U              float64 `json:"u"`
	Z              float64 `json:"z"`
	CoherenceZ     float64 `json:"coherence_z"`
	CoherenceR     float64 `json:"coherence_r"`
	CoherenceValid bool    `json:"coherence_valid"`
}

// Calibration holds the means of blocks of one length.
type Calibration struct {
	BlockBytes int       `json:"block_bytes"`
	Means      []float64 `json:"means"`
}

// Logits is a row. JSON has no infinity: null and "-inf" are a masked token.
type Logits []float64

// UnmarshalJSON implements json.Unmarshaler.
func (l *Logits) UnmarshalJSON(data []byte) error {
	var raw []any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&raw); err != nil {
		return errors.New("logits is not a list; it takes a list of numbers, with null for a masked token")
	}
	row := make([]float64, len(raw))
	for i, v := range raw {
		var err error
		if row[i], err = logit(v); err != nil {
			return fmt.Errorf("logits[%d] %w", i, err)
		}
	}
	*l = row
	return nil
}

func logit(value any) (float64, error) {
	switch v := value.(type) {
	case json.Number:
		if x, err := v.Float64(); err == nil {
			return x, nil
		}
	case nil:
		return math.Inf(-1), nil
	case string:
		if s := strings.ToLower(v); s == "-inf" || s == "-infinity" {
			return math.Inf(-1), nil
		}
	}
	return 0, fmt.Errorf("is %v; it takes a number, or null or \"-inf\" for a masked token", value)
}

// Hex is bytes, written as hexadecimal digits.
type Hex []byte

// UnmarshalJSON implements json.Unmarshaler.
func (h *Hex) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return errors.New("bytes is not text; it takes hexadecimal digits")
	}
	b, err := hex.DecodeString(text)
	if err != nil {
		return fmt.Errorf("bytes: %w; it takes hexadecimal digits, two a byte", err)
	}
	*h = b
	return nil
}

// check refuses what contradicts itself.
func (l *Line) check() error {
	given := 0
	for _, is := range []bool{l.Bytes != nil, l.U != nil, l.Number != nil} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return errors.New("bytes, u and number are given together; give one of them")
	case len(l.Logits) == 0:
		return errors.New("logits is missing or empty; it takes one number per token")
	case l.U != nil && !(*l.U > 0 && *l.U < 1):
		return fmt.Errorf("u is %v; it lies strictly between 0 and 1", *l.U)
	case l.Number != nil && !(l.Number.U > 0 && l.Number.U < 1):
		return fmt.Errorf("number.u is %v; it lies strictly between 0 and 1", l.Number.U)
	case l.Bytes != nil && len(*l.Bytes) == 0:
		return errors.New("bytes is empty; a number takes one byte or more")
	case l.Stream != "" && len(l.History) > 0:
		return errors.New("stream and history are given together; a stream has its history in the lines before")
	}
	for i, id := range l.Banned {
		if id < 0 || int(id) >= len(l.Logits) {
			return fmt.Errorf("banned[%d] is %d; the vocabulary has 0 to %d", i, id, len(l.Logits)-1)
		}
	}
	return nil
}
