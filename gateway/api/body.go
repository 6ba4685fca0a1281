package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"unicode/utf8"

	"qr-gateway/backends/nesting"
	"qr-gateway/sampler"
)

// maxDepth is how deep a body may nest. The schema needs 6; tools and template arguments a few more.
const maxDepth = 64

// ReadBody reads at most limit bytes. declared is the length the client announced, or -1; a body that is announced as too
// long is refused without being read.
func ReadBody(r io.Reader, declared, limit int64) ([]byte, error) {
	if declared > limit {
		return nil, tooLarge(limit)
	}
	raw, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, unreadable(err)
	}
	if int64(len(raw)) > limit {
		return nil, tooLarge(limit)
	}
	return raw, nil
}

func unreadable(err error) *Error {
	e := &Error{Status: http.StatusBadRequest, Type: typeInvalid, Code: "body_unreadable", Message: "the body could not be read to its end", Err: err}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e.Status, e.Code, e.Message = http.StatusRequestTimeout, "body_timeout", "the body did not arrive in the time it may take"
	}
	return e
}

func tooLarge(limit int64) *Error {
	return &Error{
		Status: http.StatusRequestEntityTooLarge, Type: typeInvalid, Code: "body_too_large",
		Message: fmt.Sprintf("the body is larger than this server takes, %d bytes (%.1f MiB)", limit, float64(limit)/(1<<20)),
	}
}

// Body is a request body whose form is sound: one JSON object, UTF-8, not too deep.
type Body struct {
	fields  object
	presets sampler.Presets
	plain   bool // plain sampling by the standard fields, whatever else is asked for
}

// Plain makes the request plain sampling by its standard fields, as with qr_bypass. Its other parameters are checked all the same.
func (b *Body) Plain() { b.plain = true }

// WithPresets makes the presets known that the request may name. It returns b.
func (b *Body) WithPresets(p sampler.Presets) *Body {
	b.presets = p
	return b
}

// Parse checks the form of raw. Of keys that occur twice the last one counts.
func Parse(raw []byte) (*Body, error) {
	if err := checkForm(raw); err != nil {
		return nil, err
	}
	var fields object
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, notJSON(raw, err)
	}
	if fields == nil {
		return nil, Invalid("", "the body is null; send a JSON object")
	}
	return &Body{fields: fields}, nil
}

// Model is the served id that the request names.
func (b *Body) Model() (string, error) {
	id, ok, err := b.fields.text("model")
	switch {
	case err != nil:
		return "", err
	case !ok || id == "":
		return "", Invalid("model", "model is missing; GET /v1/models lists the ids served here")
	default:
		return id, nil
	}
}

func checkForm(raw []byte) error {
	if len(raw) == 0 {
		return Invalid("", "the body is empty; send a JSON object")
	}
	if !utf8.Valid(raw) {
		return Invalid("", "the body is not valid UTF-8 from byte %d on", firstInvalid(raw))
	}
	return checkDepth(raw)
}

func firstInvalid(raw []byte) int {
	for i := 0; i < len(raw); {
		r, n := utf8.DecodeRune(raw[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return len(raw)
}

// checkDepth comes before the decoder, which recurses.
func checkDepth(raw []byte) error {
	if at := nesting.Deeper(raw, maxDepth); at >= 0 {
		return Invalid("", "the body nests deeper than %d levels at byte %d", maxDepth, at)
	}
	return nil
}

func notJSON(raw []byte, err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		e := Invalid("", "the body is not JSON: %s at byte %d", syntax.Error(), syntax.Offset)
		e.Code, e.Err = "invalid_json", err
		return e
	}
	return Invalid("", "the body is a JSON %s; send an object", kindOf(raw))
}
