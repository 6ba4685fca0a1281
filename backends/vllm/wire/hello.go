package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Hello is the plugin's first word.
type Hello struct {
	Protocol    int    `json:"protocol"`
	Schema      string `json:"schema"`  // [Hash] of the plugin's text
	Session     string `json:"session"` // random, of the engine process
	VLLM        string `json:"vllm"`    // version
	Runner      string `json:"runner"`  // v1 or v2
	Rows        string `json:"rows"`    // compact or full
	Vocab       int    `json:"vocab"`   // logits of a row
	MaxRows     int    `json:"max_rows"`
	Stride      int    `json:"stride"` // bytes from one row of the memfd to the next, a multiple of 64; 0: there is no memfd
	PID         int    `json:"pid"`
	TPRank      int    `json:"tp_rank"`
	TPSize      int    `json:"tp_size"`
	DPRank      int    `json:"dp_rank"`
	Model       string `json:"model"`
	MaxModelLen int    `json:"max_model_len"` // tokens
}

// Limits of a hello.
const (
	maxVocab   = 8 << 20
	maxRows    = 1<<16 - 1
	maxName    = 4096
	rowGrain   = 64
	logitBytes = 4
)

// ParseHello reads the body of a hello and holds it against what this side speaks.
func ParseHello(body []byte) (*Hello, error) {
	var h Hello
	if err := json.Unmarshal(body, &h); err != nil {
		return nil, refuse(CodeHello, "the hello is not a JSON object of the kind that is expected: %v", err)
	}
	if h.Protocol != Protocol || h.Schema != Hash() {
		r := refuse(CodeVersion, "the plugin speaks protocol %d with schema %.32q, the sidecar protocol %d with schema %q", h.Protocol, h.Schema, Protocol, Hash())
		r.Hint = "install the plugin that comes with this version of the gateway"
		return nil, r
	}
	if err := h.check(); err != nil {
		return nil, refuse(CodeHello, "the hello can't be taken: %v", err)
	}
	return &h, nil
}

func (h *Hello) check() error {
	switch {
	case !word(h.Session, 1, 128):
		return fmt.Errorf("session is %.130q; it takes 1 to 128 visible ASCII characters", h.Session)
	case h.Runner != "v1" && h.Runner != "v2":
		return fmt.Errorf("runner is %.32q; it takes v1 or v2", h.Runner)
	case h.Rows != "compact" && h.Rows != "full":
		return fmt.Errorf("rows is %.32q; it takes compact or full", h.Rows)
	case h.Vocab < 1 || h.Vocab > maxVocab:
		return fmt.Errorf("vocab is %d; it takes 1 to %d", h.Vocab, maxVocab)
	case h.MaxRows < 1 || h.MaxRows > maxRows:
		return fmt.Errorf("max_rows is %d; it takes 1 to %d", h.MaxRows, maxRows)
	case h.Stride != 0 && (h.Stride%rowGrain != 0 || h.Stride < logitBytes*h.Vocab || h.Stride > 2*logitBytes*maxVocab):
		return fmt.Errorf("stride is %d; it takes a multiple of %d with room for %d logits, or 0", h.Stride, rowGrain, h.Vocab)
	case h.TPSize < 1 || h.TPRank < 0 || h.TPRank >= h.TPSize || h.DPRank < 0:
		return fmt.Errorf("tp_rank is %d of %d, dp_rank %d", h.TPRank, h.TPSize, h.DPRank)
	case len(h.Model) > maxName || len(h.VLLM) > maxName || h.MaxModelLen < 0:
		return errors.New("model, vllm or max_model_len is out of range")
	}
	return nil
}

// word reports a text of lo to hi visible ASCII characters.
func word(s string, lo, hi int) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) >= lo && len(s) <= hi
}

// Welcome is the sidecar's answer to a hello.
type Welcome struct {
	Protocol   int    `json:"protocol"`
	Schema     string `json:"schema"`
	Sidecar    string `json:"sidecar"`     // version
	Top        int    `json:"top"`         // entries of a compact row, where the vocabulary has as many
	DeadlineMS int    `json:"deadline_ms"` // of one step
}

// AppendJSON adds a hello, welcome or refuse frame to b.
func AppendJSON(b []byte, kind Kind, v any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return b, fmt.Errorf("encode %s: %w", kind, err)
	}
	body := bytes.TrimRight(text.Bytes(), "\n")
	return append(Header{Size: uint32(len(body)), Kind: kind}.Append(b), body...), nil
}
