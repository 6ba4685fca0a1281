package http

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// How bytes are written in JSON.
const (
	encodingUint8    = "uint8"    // a list of numbers from 0 to 255
	encodingUint16le = "uint16le" // a list of numbers from 0 to 65535, low byte first
	encodingHex      = "hex"      // a text, or a list of them
	encodingBase64   = "base64"   // a text, or a list of them
)

func encodings() []string {
	return []string{encodingUint8, encodingUint16le, encodingHex, encodingBase64}
}

// decode appends to dst what a JSON value holds, at most limit bytes.
func decode(dst []byte, value json.RawMessage, encoding string, limit int) ([]byte, error) {
	switch encoding {
	case encodingUint8:
		return appendNumbers(dst, value, 1, limit)
	case encodingUint16le:
		return appendNumbers(dst, value, 2, limit)
	default:
		return appendTexts(dst, value, encoding, limit)
	}
}

// appendNumbers reads a list of whole numbers of size bytes, or a single one.
func appendNumbers(dst []byte, value json.RawMessage, size, limit int) ([]byte, error) {
	text := bytes.TrimSpace(value)
	inside, ok := bytes.CutPrefix(text, []byte("["))
	if ok {
		if inside, ok = bytes.CutSuffix(inside, []byte("]")); !ok {
			return nil, errors.New("the list does not end")
		}
		if len(bytes.TrimSpace(inside)) == 0 {
			return dst, nil
		}
	} else {
		inside = text
	}
	for more := true; more; {
		var word []byte
		word, inside, more = bytes.Cut(inside, []byte(","))
		n, err := strconv.ParseUint(unquote(bytes.TrimSpace(word)), 10, 8*size)
		if err != nil {
			return nil, fmt.Errorf("%.20q is no number of %d bits", word, 8*size)
		}
		dst = append(dst, byte(n))
		if size == 2 {
			dst = append(dst, byte(n>>8))
		}
		if len(dst) > limit {
			return nil, errTooMuch
		}
	}
	return dst, nil
}

// unquote takes the quotes off a number that is written as text.
func unquote(word []byte) string {
	if n := len(word); n >= 2 && word[0] == '"' && word[n-1] == '"' {
		word = word[1 : n-1]
	}
	return string(word)
}

var errTooMuch = errors.New("it holds more bytes than were asked for")

// appendTexts reads a text or a list of texts.
func appendTexts(dst []byte, value json.RawMessage, encoding string, limit int) ([]byte, error) {
	var texts []string
	if bytes.HasPrefix(bytes.TrimSpace(value), []byte("[")) {
		if err := json.Unmarshal(value, &texts); err != nil {
			return nil, errors.New("it is no list of texts")
		}
	} else {
		texts = []string{""}
		if err := json.Unmarshal(value, &texts[0]); err != nil || bytes.HasPrefix(bytes.TrimSpace(value), []byte("n")) {
			return nil, errors.New("it is no text")
		}
	}
	for _, text := range texts {
		var err error
		if encoding == encodingHex {
			dst, err = hex.AppendDecode(dst, []byte(text))
		} else {
			dst, err = base64.StdEncoding.AppendDecode(dst, []byte(text))
		}
		if err != nil {
			return nil, fmt.Errorf("it is no %s: %w", encoding, err)
		}
		if len(dst) > limit {
			return nil, errTooMuch
		}
	}
	return dst, nil
}

// goodPath reports whether a path has no empty part.
func goodPath(path string) bool {
	for part := range strings.SplitSeq(path, ".") {
		if part == "" {
			return false
		}
	}
	return true
}

// maxItems bounds what * may stand for.
const maxItems = 1 << 20

// walk calls visit with each value that path leads to.
func walk(value json.RawMessage, path string, visit func(json.RawMessage) error) error {
	if path == "" {
		return visit(value)
	}
	part, rest, _ := strings.Cut(path, ".")
	if isList := bytes.HasPrefix(bytes.TrimSpace(value), []byte("[")); isList {
		return walkList(value, part, rest, visit)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(value, &object); err != nil || object == nil {
		return fmt.Errorf("there is no object to have a field %q", part)
	}
	next, ok := object[part]
	if !ok {
		return fmt.Errorf("it has no field %q", part)
	}
	return walk(next, rest, visit)
}

func walkList(value json.RawMessage, part, rest string, visit func(json.RawMessage) error) error {
	var list []json.RawMessage
	if err := json.Unmarshal(value, &list); err != nil || len(list) > maxItems {
		return fmt.Errorf("the list can't be read, or has more than %d items", maxItems)
	}
	if part == "*" {
		for _, item := range list {
			if err := walk(item, rest, visit); err != nil {
				return err
			}
		}
		return nil
	}
	i, err := strconv.Atoi(part)
	if err != nil || i < 0 || i >= len(list) {
		return fmt.Errorf("the list of %d items has no item %q", len(list), part)
	}
	return walk(list[i], rest, visit)
}
