// Package observe is what an operator sees: the log and the metrics.
//
// [NewLog] makes a slog logger that never writes what people said or the keys they hold: attributes with such names are
// replaced by their length and the beginning of their hash, enough to tell two apart.
//
// [Metrics] owns a Prometheus registry. What happens is told to it ([Metrics.Observe], [Metrics.Waited]); what is, such as
// queue depth and engine state, is read from its owners at each scrape, so a model that is gone leaves no series behind.
// Both are safe for concurrent use.
package observe

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
)

// LogConfig says what to log and how.
type LogConfig struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// NewLog makes a logger that writes to w.
func NewLog(c LogConfig, w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, fmt.Errorf("read log level %q: it takes debug, info, warn or error", c.Level)
	}
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: redact}
	switch c.Format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	default:
		return nil, fmt.Errorf("read log format %q: it takes text or json", c.Format)
	}
}

// private are the names of attributes whose values stay out of the log.
func private(name string) bool {
	switch name {
	case "prompt", "messages", "content", "reasoning", "completion", "input", "stop", "body", "arguments",
		"key", "api_key", "authorization", "cookie", "password", "secret":
		return true
	default:
		return false
	}
}

// redact replaces the values of private attributes.
func redact(_ []string, a slog.Attr) slog.Attr {
	if !private(a.Key) {
		return a
	}
	return slog.String(a.Key, Fingerprint(a.Value.Resolve().String()))
}

// Fingerprint stands for a text that must not be shown: its length in bytes and the first 32 bits of its SHA-256.
func Fingerprint(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("[%d bytes, sha256 %s]", len(text), hex.EncodeToString(sum[:4]))
}
