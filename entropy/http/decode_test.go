package http

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Whatever bytes are written in an encoding are read back.
func TestDecodeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Byte(), 2, 300).Draw(t, "bytes")
		want = want[:len(want)&^1]
		var words []int
		for i := 0; i < len(want); i += 2 {
			words = append(words, int(want[i])|int(want[i+1])<<8)
		}
		for encoding, v := range map[string]any{
			encodingUint8: numbers(want), encodingUint16le: words, encodingHex: texts(want, 2), encodingBase64: want,
		} {
			text, err := json.MarshalIndent(v, " ", "\t")
			if err != nil {
				t.Fatal(err)
			}
			got, err := decode(nil, text, encoding, len(want))
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s: got %x, %v, want %x", encoding, got, err, want)
			}
			if _, err := decode(nil, text, encoding, len(want)-1); err == nil {
				t.Fatalf("%s: more than the limit is taken", encoding)
			}
		}
	})
}

func TestWalk(t *testing.T) {
	const text = `{"a":{"b":[{"c":1},{"c":2}]},"d":[[3,4],[5]]}`
	for path, want := range map[string]string{
		"a.b.*.c": "[1 2]", "a.b.1.c": "[2]", "d.0": "[[3,4]]", "d.*.0": "[3 5]",
		"a.x": "", "a.b.2": "", "a.b.-1": "", "a.b.c": "", "d.0.0.0": "", "*": "",
	} {
		var got []string
		err := walk([]byte(text), path, func(v json.RawMessage) error { got = append(got, string(v)); return nil })
		if (err == nil) != (want != "") || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%s: got %v, %v, want %s", path, got, err, want)
		}
	}
}

// FuzzRead: an answer that is taken has exactly as many bytes as were asked for, of any interface.
func FuzzRead(f *testing.F) {
	f.Add([]byte(open16()), 16)
	f.Add([]byte(anu16()), 16)
	f.Add([]byte(`{"success":true,"length":1,"data":["`+string(bytes.Repeat([]byte("00"), 20))+`"]}`), 20)
	f.Add([]byte(`{"result":{"ok":true,"values":[1,"2",65535]}}`), 6)
	f.Add([]byte(`{"random":["AAAA",""]}`), 3)
	f.Fuzz(func(t *testing.T, body []byte, n int) {
		if n < 1 || n > 4096 {
			return
		}
		for _, s := range services() {
			a, _ := find(s.cfg.API)
			if a.raw {
				continue
			}
			c := a.plan(s.cfg, n)
			got, err := a.read(make([]byte, 0, c.gets), body, s.cfg, c)
			if err == nil && len(got.data) > c.gets {
				t.Fatalf("%s: %d bytes for %d", s.cfg.API, len(got.data), c.gets)
			}
			if err == nil && !json.Valid(body) {
				t.Fatalf("%s takes what is no JSON: %s", s.cfg.API, body)
			}
		}
	})
}
