package param

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Value is one value of a field, in the member that the field's type names.
type Value struct {
	Null   bool // nothing: the field is unset
	Number float64
	Int    int64
	Text   string
	Bool   bool
	Biases []Bias
}

// Bias is added to the logit of one token.
type Bias struct {
	Token int32
	Bias  float64
}

// Coding says how values are written.
type Coding bool

const (
	// Strict takes a value of the field's own type only.
	Strict Coding = false
	// Loose also takes numbers and flags written as text ("7", " 8 ", "7.0", "1_000", "yes"), flags written as 1 and 0, and true and
	// false for 1 and 0.
	Loose Coding = true
)

// Read gives value, as encoding/json decodes one or as a Go integer, the type of the field. It doesn't look at the range.
func (f *Field) Read(value any, c Coding) (Value, bool) {
	if value == nil {
		return Value{Null: true}, f.Nullable
	}
	switch f.Type {
	case TypeNumber:
		x, ok := asFloat(value, c)
		return Value{Number: x}, ok
	case TypeInteger:
		i, ok := asInt(value, c)
		return Value{Int: i}, ok
	case TypeString:
		s, ok := value.(string)
		return Value{Text: s}, ok
	case TypeBool:
		b, ok := asBool(value, c)
		return Value{Bool: b}, ok
	case TypeObject:
		b, ok := asBiases(value, c)
		return Value{Biases: b}, ok
	}
	return Value{}, false
}

// Take is Read, then Fits. The error is an *[Error] about name, the word that the caller knows the field by.
func (f *Field) Take(name string, value any, c Coding) (Value, error) {
	v, ok := f.Read(value, c)
	if !ok || !f.Fits(v) {
		return Value{}, f.refuse(name, value)
	}
	return v, nil
}

// TakeText is Take for text of the environment or a command line. The word null, or nothing at all, unsets a nullable field.
func (f *Field) TakeText(name, text string) (Value, error) {
	bare := strings.TrimSpace(text)
	switch {
	case f.Nullable && (bare == "" || bare == "null"):
		return Value{Null: true}, nil
	case f.Type == TypeObject:
		var object map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			return Value{}, f.refuse(name, text)
		}
		return f.Take(name, object, Strict)
	}
	v, err := f.Take(name, text, Loose)
	if _, isNumber := digits(text, "+-.eE"); err != nil && isNumber && bare != "" {
		return Value{}, &Error{Key: name, Value: bare, Allowed: f.Allowed()} // a number without the quotes of a text
	}
	return v, err
}

// DefaultValue is the value of a field that nobody set.
func (f *Field) DefaultValue() Value {
	v, _ := f.Read(f.Default, Strict)
	return v
}

// maxExact is the largest integer that no other one is rounded to as a float64.
const maxExact = 1<<53 - 1

// asFloat reads a finite number.
func asFloat(value any, c Coding) (float64, bool) {
	var x float64
	switch v := value.(type) {
	case float64:
		x = v
	case int:
		x = float64(v)
	case int64:
		x = float64(v)
	case json.Number:
		var err error
		if x, err = strconv.ParseFloat(string(v), 64); err != nil {
			return 0, false
		}
	default:
		return looseFloat(value, c)
	}
	return x, !math.IsNaN(x) && !math.IsInf(x, 0)
}

func looseFloat(value any, c Coding) (float64, bool) {
	switch v := value.(type) {
	case bool:
		return oneOrZero(v), bool(c)
	case string:
		text, ok := digits(v, "+-.eE")
		x, err := strconv.ParseFloat(text, 64)
		return x, bool(c) && ok && err == nil && !math.IsInf(x, 0)
	}
	return 0, false
}

// asInt reads a whole number; 3.0 and 1e3 are whole. A float of 2^53 or more is refused: it may not be the number that was meant.
func asInt(value any, c Coding) (int64, bool) {
	switch v := value.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case json.Number:
		if i, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return i, true
		}
	case string:
		return looseInt(v, c)
	}
	x, ok := asFloat(value, c)
	if !ok || x != math.Trunc(x) || math.Abs(x) > maxExact {
		return 0, false
	}
	return int64(x), true
}

// looseInt takes 7.0 too, as qr-sampler does, but no exponent.
func looseInt(s string, c Coding) (int64, bool) {
	text, ok := digits(s, "+-.")
	if whole, zeros, dot := strings.Cut(text, "."); dot && strings.Trim(zeros, "0") == "" {
		text = whole
	}
	i, err := strconv.ParseInt(text, 10, 64)
	return i, bool(c) && ok && err == nil
}

// digits drops the spaces around a number and the _ between its digits. others are the characters it may have beside digits.
func digits(s, others string) (string, bool) {
	s = strings.TrimSpace(s)
	if len(s) > 64 {
		return "", false
	}
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		switch b := s[i]; {
		case isDigit(b) || strings.IndexByte(others, b) >= 0:
			out = append(out, b)
		case b == '_' && i > 0 && i+1 < len(s) && isDigit(s[i-1]) && isDigit(s[i+1]):
		default:
			return "", false
		}
	}
	return string(out), true
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// asBool reads a flag. Its words are those of qr-sampler, in any case, without spaces.
func asBool(value any, c Coding) (b, ok bool) {
	if b, ok := value.(bool); ok {
		return b, true
	}
	if s, isText := value.(string); isText && c == Loose {
		switch strings.ToLower(s) {
		case "1", "true", "t", "yes", "y", "on":
			return true, true
		case "0", "false", "f", "no", "n", "off":
			return false, true
		}
		return false, false
	}
	x, ok := asFloat(value, Strict)
	return x == 1, ok && c == Loose && (x == 0 || x == 1)
}

func oneOrZero(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Equal reports whether two values of one field are the same. NaN is the same as NaN.
func (v Value) Equal(w Value) bool {
	same := v.Number == w.Number || v.Number != v.Number && w.Number != w.Number
	return same && v.Null == w.Null && v.Int == w.Int && v.Text == w.Text && v.Bool == w.Bool && slices.Equal(v.Biases, w.Biases)
}
