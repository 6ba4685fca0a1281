// Package members edits a JSON object where it stands: what is not replaced stays byte for byte, so that numbers, unknown keys and the order
// of keys survive. Its functions are pure.
package members

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
)

// member is one of a JSON object: its key, and where key and value stand.
type member struct {
	key            string
	at, start, end int // of the key's first byte, and of the value
}

// Object is a JSON object as it is written, with where its members stand.
type Object struct {
	raw     []byte
	members []member
	end     int // of its closing brace
}

var errNoObject = errors.New("it is no JSON object")

// Parse finds the members of raw, which is valid JSON. Of what isn't, anything may be said. The object shares raw, which is not to be changed.
func Parse(raw []byte) (*Object, error) {
	o := &Object{raw: raw}
	at := space(raw, 0)
	if at == len(raw) || raw[at] != '{' {
		return nil, errNoObject
	}
	for at = space(raw, at+1); at < len(raw) && raw[at] != '}'; at = space(raw, at) {
		if raw[at] == ',' {
			at = space(raw, at+1)
		}
		first, stop := at, value(raw, at)
		var key string
		if json.Unmarshal(raw[first:stop], &key) != nil {
			return nil, errNoObject
		}
		start := space(raw, space(raw, stop)+1) // behind the colon
		if start >= len(raw) {
			return nil, errNoObject
		}
		at = value(raw, start)
		o.members = append(o.members, member{key: key, at: first, start: start, end: at})
	}
	if at >= len(raw) {
		return nil, errNoObject
	}
	o.end = at
	return o, nil
}

// Get is the value of a key, or nil. Of keys that occur twice the last one counts.
func (o *Object) Get(key string) json.RawMessage {
	var found json.RawMessage
	for _, m := range o.members {
		if m.key == key {
			found = o.raw[m.start:m.end]
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

// Edit is the object with the values of some keys replaced, or taken out where the new one is nil, and others added where it lacks them. All
// values are JSON.
func (o *Object) Edit(replace, add map[string][]byte) []byte {
	out, has := o.kept(replace)
	some := len(has) > 0
	for _, extra := range []map[string][]byte{replace, add} {
		for _, key := range slices.Sorted(maps.Keys(extra)) {
			if has[key] || extra[key] == nil {
				continue
			}
			if some {
				out = append(out, ',')
			}
			some, has[key] = true, true
			out = append(append(out, Quote(key)+":"...), extra[key]...)
		}
	}
	return append(out, o.raw[o.end:]...)
}

// kept is the object up to its closing brace, with the keys that it has.
func (o *Object) kept(replace map[string][]byte) (out []byte, has map[string]bool) {
	out, has = make([]byte, 0, len(o.raw)+128), map[string]bool{}
	at := o.end
	if len(o.members) > 0 {
		at = o.members[0].at
	}
	out = append(out, o.raw[:at]...)
	for _, m := range o.members {
		value, ok := replace[m.key]
		switch {
		case ok && value == nil:
			at = m.end
			continue
		case !ok:
			value = o.raw[m.start:m.end]
		}
		from := at // with the comma before the key
		if len(has) == 0 {
			from = m.at
		}
		has[m.key] = true
		out = append(append(append(out, o.raw[from:m.at]...), o.raw[m.at:m.start]...), value...)
		at = m.end
	}
	return append(out, o.raw[at:o.end]...), has
}

// Quote is text as JSON, with <, > and & as they are.
func Quote(text string) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		panic(err) // text can always be written
	}
	return string(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
}
