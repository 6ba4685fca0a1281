package openai

import (
	"bytes"
	"encoding/json"
	"errors"
)

// member is one of a JSON object: its key, and where its value stands.
type member struct {
	key        string
	start, end int
}

// object is a JSON object as it is written, with where its members stand.
type object struct {
	raw     []byte
	members []member
	end     int // of its closing brace
}

var errNoObject = errors.New("it is no JSON object")

// parse finds the members of raw, which is valid JSON. Of what isn't, anything may be said.
func parse(raw []byte) (*object, error) {
	o := &object{raw: raw}
	at := space(raw, 0)
	if at == len(raw) || raw[at] != '{' {
		return nil, errNoObject
	}
	for at = space(raw, at+1); at < len(raw) && raw[at] != '}'; at = space(raw, at) {
		if raw[at] == ',' {
			at = space(raw, at+1)
		}
		stop := value(raw, at)
		var key string
		if json.Unmarshal(raw[at:stop], &key) != nil {
			return nil, errNoObject
		}
		start := space(raw, space(raw, stop)+1) // behind the colon
		if start >= len(raw) {
			return nil, errNoObject
		}
		at = value(raw, start)
		o.members = append(o.members, member{key: key, start: start, end: at})
	}
	if at >= len(raw) {
		return nil, errNoObject
	}
	o.end = at
	return o, nil
}

// get is the value of a key, or nil.
func (o *object) get(key string) json.RawMessage {
	var found json.RawMessage
	for _, m := range o.members {
		if m.key == key {
			found = o.raw[m.start:m.end] // of keys that occur twice the last one counts
		}
	}
	return found
}

// space is where something else than white space stands, from at on.
func space(raw []byte, at int) int {
	for at < len(raw) && (raw[at] == ' ' || raw[at] == '\n' || raw[at] == '\r' || raw[at] == '\t') {
		at++
	}
	return min(at, len(raw))
}

// value is where the value ends that begins at at.
func value(raw []byte, at int) int {
	depth := 0
	for ; at < len(raw); at++ {
		switch raw[at] {
		case '"':
			at = text(raw, at) - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth == 0 {
				return at // the end of what holds it
			}
			depth--
		default:
			if depth > 0 || !bytes.ContainsRune([]byte(",: \n\r\t"), rune(raw[at])) {
				continue
			}
			return at
		}
		if depth == 0 {
			return min(at+1, len(raw))
		}
	}
	return len(raw)
}

// text is where the string ends that begins at at.
func text(raw []byte, at int) int {
	for at++; at < len(raw); at++ {
		next := bytes.IndexAny(raw[at:], `"\`)
		if next < 0 {
			break
		}
		if at += next; raw[at] == '"' {
			return at + 1
		}
		at++ // what the backslash escapes
	}
	return len(raw)
}

// edit is the object with the values of some keys replaced, and others added where it lacks them. All else stays byte for byte.
func (o *object) edit(replace, add map[string][]byte) []byte {
	out := make([]byte, 0, len(o.raw)+128)
	at, has := 0, map[string]bool{}
	for _, m := range o.members {
		has[m.key] = true
		if value, ok := replace[m.key]; ok {
			out = append(append(out, o.raw[at:m.start]...), value...)
			at = m.end
		}
	}
	out = append(out, o.raw[at:o.end]...)
	for _, extra := range []map[string][]byte{replace, add} {
		for _, key := range sorted(extra) {
			if has[key] {
				continue
			}
			if len(has) > 0 {
				out = append(out, ',')
			}
			has[key] = true
			out = append(append(out, quote(key)+":"...), extra[key]...)
		}
	}
	return append(out, o.raw[o.end:]...)
}

// rename is the object raw with another model.
func rename(raw []byte, model string) ([]byte, error) {
	o, err := parse(raw)
	if err != nil {
		return nil, err
	}
	return o.edit(map[string][]byte{"model": []byte(quote(model))}, nil), nil
}
