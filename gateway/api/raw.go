package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	"qr-gateway/backends"
)

// Paths of the two ways to ask, below the version.
const (
	ChatPath       = "chat/completions"
	CompletionPath = "completions"
)

// Passing says how a request is passed on.
type Passing struct {
	Path   string // ChatPath or CompletionPath
	Model  string // served id
	Task   string // what a client's own call is for, or empty
	Params bool   // the other side knows our keys
	strip  bool   // they were read here, and none goes on
}

// Raw reads a request that is passed on as it is. Checked is only what this side needs to know of it. Numbers, unknown fields and the texts of
// all others stay as the client wrote them; of keys that occur twice the last one goes on.
func (b *Body) Raw(to Passing) (*Call, error) {
	if err := b.fields.hasPrompt(to.Path); err != nil {
		return nil, err
	}
	call := &Call{}
	var err error
	if call.Stream, _, err = b.fields.boolean("stream"); err != nil {
		return nil, err
	}
	fields, err := b.passed(to)
	if err != nil {
		return nil, err
	}
	raw, err := encode(fields)
	if err != nil {
		return nil, err
	}
	call.Request = &backends.Request{Model: to.Model, Raw: raw, Path: to.Path, Stream: call.Stream}
	return call, nil
}

func (o object) hasPrompt(path string) error {
	if path == CompletionPath {
		if _, ok := o.get("prompt"); !ok {
			return Invalid("prompt", "prompt is missing; send a string, or what else the model takes")
		}
		return nil
	}
	items, _, err := o.list("messages")
	if err == nil && len(items) == 0 {
		err = Invalid("messages", "messages is empty; send at least one, e.g. {\"role\": \"user\", \"content\": \"Hello\"}")
	}
	return err
}

// passed are the fields that go on.
func (b *Body) passed(to Passing) (object, error) {
	fields := maps.Clone(b.fields)
	if to.Params {
		if to.Task != "" {
			fields[taskKey] = quoted(to.Task) // what a header or the model's alias says would be lost otherwise
		}
	} else if err := fields.strip(to.strip); err != nil {
		return nil, err
	}
	fields["model"] = quoted(to.Model)
	return fields, nil
}

// strip takes out the keys that say where a request comes from, wherever they may stand. Those that are parameters it refuses, or takes out with
// them where all is true.
func (o object) strip(all bool) error {
	if err := o.stripOwn(all); err != nil {
		return err
	}
	for _, nest := range nests {
		inner, ok, err := o.object(nest)
		if err != nil || !ok {
			continue // it means something else to the other side
		}
		before := len(inner)
		if err := inner.stripOwn(all); err != nil {
			return err
		}
		switch {
		case len(inner) == before:
			continue
		case len(inner) == 0:
			delete(o, nest)
			continue
		}
		if o[nest], err = encode(inner); err != nil {
			return err
		}
	}
	return nil
}

// stripOwn does it in o itself.
func (o object) stripOwn(all bool) error {
	for _, name := range sortedKeys(o) {
		switch {
		case !ours(name):
		case all, name == clientKey, name == taskKey, isNull(o[name]):
			delete(o, name)
		default:
			return unsupported(name, "%s is given, but this model is served by an upstream that does not choose tokens by qr_ parameters; leave it out", quote(name))
		}
	}
	return nil
}

// quoted is text as JSON.
func quoted(text string) json.RawMessage {
	raw, err := encode(text)
	if err != nil {
		panic(err) // text can always be written
	}
	return raw
}

// Raw sends chunk, which is JSON, as one event and as it is, but in one line.
func (s *Stream) Raw(chunk []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.Reset()
	s.buf.WriteString("data: ")
	if bytes.ContainsAny(chunk, "\r\n") { // between tokens: text has them escaped
		chunk = bytes.Map(spaced, chunk)
	}
	s.buf.Write(chunk)
	s.buf.WriteString("\n\n")
	return s.send()
}

func spaced(r rune) rune {
	if r == '\r' || r == '\n' {
		return ' '
	}
	return r
}

// WriteRaw sends raw, which is JSON, as a whole reply and as it is.
func WriteRaw(w http.ResponseWriter, raw []byte) error {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
	w.WriteHeader(http.StatusOK)
	if _, err := w.Write(raw); err != nil {
		return fmt.Errorf("write reply: %w", err)
	}
	return nil
}
