package param

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Error is a parameter that can't be taken. Exactly one of Allowed and Nearest may be empty.
type Error struct {
	Key     string
	Value   string // as it was given, shortened
	Allowed string // what the key takes; empty for an unknown key
	Nearest string // for an unknown key: the known one that looks most like it, or empty
	Reason  string // for a conflict between fields: the whole message
}

func (e *Error) Error() string {
	switch {
	case e.Reason != "":
		return e.Reason
	case e.Allowed != "":
		return fmt.Sprintf("%s is %s; it takes %s", e.Key, e.Value, e.Allowed)
	case e.Nearest != "":
		return fmt.Sprintf("unknown parameter %q; did you mean %q?", e.Key, e.Nearest)
	}
	return fmt.Sprintf("unknown parameter %q", e.Key)
}

func (f *Field) refuse(name string, value any) *Error {
	shown := Show(value)
	if f.Secret {
		shown = "a value that is not shown"
	}
	return &Error{Key: name, Value: shown, Allowed: f.Allowed()}
}

// Show writes value as JSON would, at most 60 bytes of it.
func Show(value any) string {
	if x, ok := value.(float64); ok {
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	b, err := json.Marshal(value)
	if err != nil {
		b = []byte(fmt.Sprint(value))
	}
	if len(b) > 60 {
		return strings.ToValidUTF8(string(b[:57]), "") + "..."
	}
	return string(b)
}
