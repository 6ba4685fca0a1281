package vllm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"qr-gateway/backends/members"
)

// chunk is a piece of an answer as the server sent it: a chunk of a stream, or a whole reply.
type chunk struct {
	raw     []byte
	choices []json.RawMessage
	tokens  []int32 // of all choices
	named   bool    // a choice has its tokens
	ended   bool    // a choice has
	text    bool    // a choice has text, or something else of the answer
	usage   bool    // it tells the usage, and nothing else
}

// picked is what is read of a choice.
type picked struct {
	TokenIDs *[]int32        `json:"token_ids"`
	Reason   *string         `json:"finish_reason"`
	Text     string          `json:"text"`
	Delta    json.RawMessage `json:"delta"`
	Message  json.RawMessage `json:"message"`
}

// readChunk reads what is known to be JSON with choices.
func readChunk(raw []byte) (*chunk, error) {
	var body struct {
		Choices []json.RawMessage
		Usage   json.RawMessage
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return nil, fmt.Errorf("read chunk: %w", err)
	}
	c := &chunk{raw: raw, choices: body.Choices}
	for i, choice := range body.Choices {
		var p picked
		if err := json.Unmarshal(choice, &p); err != nil {
			return nil, fmt.Errorf("read choice %d: %w", i, err)
		}
		if p.TokenIDs != nil {
			c.named = true
			c.tokens = append(c.tokens, *p.TokenIDs...)
		}
		c.ended = c.ended || p.Reason != nil && *p.Reason != ""
		c.text = c.text || p.Text != "" || said(p.Delta) || p.Message != nil
	}
	c.usage = len(body.Choices) == 0 && bytes.HasPrefix(bytes.TrimSpace(body.Usage), []byte("{"))
	return c, nil
}

// said reports a delta that has more than a role.
func said(delta json.RawMessage) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(delta, &fields) != nil {
		return false
	}
	for key, value := range fields {
		if key != "role" && string(value) != `""` && string(value) != "null" && string(value) != "[]" {
			return true
		}
	}
	return false
}

// dress is how chunks are changed for the client.
type dress struct {
	id      []byte // of the answer, as JSON
	created []byte // as JSON
	ids     bool   // the client asked for the ids of tokens
	usage   bool   // the client asked for the usage
	stream  bool
}

// fit makes the chunk the client's, as one of the choice with that index.
func (d *dress) fit(c *chunk, index int) (json.RawMessage, error) {
	set := map[string][]byte{"id": d.id, "created": d.created}
	if !d.ids {
		set["prompt_token_ids"] = nil
	}
	if d.stream && !d.usage {
		set["usage"] = nil
	}
	var err error
	if set["choices"], err = d.choices(c.choices, index); err != nil {
		return nil, err
	}
	o, err := members.Parse(c.raw)
	if err != nil {
		return nil, fmt.Errorf("read chunk: %w", err)
	}
	return o.Edit(set, nil), nil
}

func (d *dress) choices(all []json.RawMessage, index int) ([]byte, error) {
	set := map[string][]byte{"index": strconv.AppendInt(nil, int64(index), 10)}
	if !d.ids {
		set["token_ids"], set["prompt_token_ids"] = nil, nil
	}
	out := []byte{'['}
	for i, raw := range all {
		o, err := members.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("read choice %d: %w", i, err)
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, o.Edit(set, nil)...)
	}
	return append(out, ']'), nil
}
