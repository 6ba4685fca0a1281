package route

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"

	"qr-gateway/backends"
)

// key stands for how a prompt begins.
type key [sha256.Size]byte

// Prompts that have so much in common begin alike.
const (
	keyBytes  = 1024
	keyTokens = 256
)

// keyOf makes the key of a request. The turns of one conversation have one key: it is made of the messages up to the first of the user.
func keyOf(p *backends.Prepared) key {
	r := p.Request
	switch {
	case r.Raw != nil:
		return sha256.Sum256(rawBeginning(r.Raw))
	case r.Chat != nil:
		return sha256.Sum256(opening(r.Chat.Messages))
	case r.Text != nil:
		return sha256.Sum256([]byte((*r.Text)[:min(len(*r.Text), keyBytes)]))
	}
	var data []byte
	for _, id := range p.Tokens[:min(len(p.Tokens), keyTokens)] {
		data = binary.LittleEndian.AppendUint32(data, uint32(id))
	}
	return sha256.Sum256(data)
}

// opening are the messages of a JSON array up to the first of the user. It reads no further.
func opening(messages []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(messages))
	if _, err := dec.Token(); err != nil {
		return nil
	}
	var out []byte
	for dec.More() {
		var m struct {
			Role    string
			Content json.RawMessage
		}
		if err := dec.Decode(&m); err != nil {
			return out
		}
		out = append(append(append(out, m.Role...), 0), m.Content...)
		if m.Role == "user" {
			break
		}
	}
	return out
}

// rawBeginning is the same of a whole body.
func rawBeginning(body []byte) []byte {
	var b struct{ Messages, Prompt json.RawMessage }
	if json.Unmarshal(body, &b) != nil {
		return nil
	}
	if b.Messages != nil {
		return opening(b.Messages)
	}
	return b.Prompt[:min(len(b.Prompt), keyBytes)]
}
