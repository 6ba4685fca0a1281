package api

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"
)

// object is a JSON object with its values unread. A null value is the same as an absent one.
type object map[string]json.RawMessage

func (o object) get(key string) (json.RawMessage, bool) {
	raw, ok := o[key]
	return raw, ok && !isNull(raw)
}

func (o object) text(key string) (string, bool, error) {
	raw, ok := o.get(key)
	if !ok {
		return "", false, nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", false, wrongType(key, "a string", raw)
	}
	return s, true, nil
}

func (o object) boolean(key string) (value, ok bool, err error) {
	raw, ok := o.get(key)
	if !ok {
		return false, false, nil
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return false, false, wrongType(key, "true or false", raw)
	}
	return value, true, nil
}

// integer takes 16 and 16.0, but neither 16.5 nor "16".
func (o object) integer(key string, least, most int64) (int64, bool, error) {
	raw, ok := o.get(key)
	if !ok {
		return 0, false, nil
	}
	if kindOf(raw) != "number" {
		return 0, false, wrongType(key, "an integer", raw)
	}
	n, whole := wholeNumber(raw)
	if !whole || n < least || n > most {
		return 0, false, Invalid(key, "%s is %s; it takes an integer from %d to %d", key, quote(string(raw)), least, most)
	}
	return n, true, nil
}

func (o object) list(key string) ([]json.RawMessage, bool, error) {
	raw, ok := o.get(key)
	if !ok {
		return nil, false, nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, false, wrongType(key, "a list", raw)
	}
	return items, true, nil
}

func (o object) object(key string) (object, bool, error) {
	raw, ok := o.get(key)
	if !ok {
		return nil, false, nil
	}
	var inner object
	if err := json.Unmarshal(raw, &inner); err != nil {
		return nil, false, wrongType(key, "an object", raw)
	}
	return inner, true, nil
}

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }

// wholeNumber reads a JSON number as an integer, if it is one that fits.
func wholeNumber(raw json.RawMessage) (int64, bool) {
	text := string(bytes.TrimSpace(raw))
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// kindOf names the JSON type of a value that is known to be JSON.
func kindOf(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "list"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	default:
		return "number"
	}
}

func wrongType(param, want string, raw []byte) *Error {
	kind := kindOf(raw)
	article := "a"
	if kind == "object" {
		article = "an"
	}
	e := Invalid(param, "%s must be %s, not %s %s", param, want, article, kind)
	e.Code = "invalid_type"
	return e
}

// quoteLimit bounds how much of a client's text a message repeats.
const quoteLimit = 80

// quote makes a client's text fit to be repeated in a message.
func quote(s string) string {
	if len(s) <= quoteLimit {
		return s
	}
	cut := quoteLimit
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}
