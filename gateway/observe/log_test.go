package observe_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"qr-gateway/gateway/observe"
)

func TestLogKeepsPrivateThingsOut(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out strings.Builder
		log, err := observe.NewLog(observe.LogConfig{Level: "info", Format: format}, &out)
		if err != nil {
			t.Fatal(err)
		}
		log.With("key", "sk-hidden").Info("request", "model", "m", "prompt", "hidden words",
			"messages", json.RawMessage(`[{"content":"hidden"}]`), slog.Group("client", "authorization", "Bearer hidden"))
		if text := out.String(); strings.Contains(text, "hidden") {
			t.Errorf("%s: the log shows private values:\n%s", format, text)
		}
		for _, want := range []string{"request", "12 bytes", "model"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: the log lacks %q:\n%s", format, want, out.String())
			}
		}
	}
}

func TestFingerprint(t *testing.T) {
	if got, want := observe.Fingerprint("abc"), "[3 bytes, sha256 ba7816bf]"; got != want {
		t.Errorf("Fingerprint = %s, want %s", got, want)
	}
}

func TestLogLevel(t *testing.T) {
	var out strings.Builder
	log, err := observe.NewLog(observe.LogConfig{Level: "warn", Format: "json"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("quiet")
	log.Warn("loud")
	var line struct{ Msg string }
	if err := json.Unmarshal([]byte(out.String()), &line); err != nil || line.Msg != "loud" {
		t.Errorf("log is %q, want one JSON line: loud", out.String())
	}
	for _, bad := range []observe.LogConfig{{Level: "loud", Format: "text"}, {Level: "info", Format: "xml"}} {
		if _, err := observe.NewLog(bad, &out); err == nil {
			t.Errorf("NewLog took %+v", bad)
		}
	}
}
