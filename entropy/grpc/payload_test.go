package grpc

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// pack is the other side of unpack.
func pack(form string, b []byte) []byte {
	var out []byte
	switch form {
	case "hex":
		return []byte(hex.EncodeToString(b))
	case "base64":
		return []byte(base64.StdEncoding.EncodeToString(b))
	case "bits":
		for _, v := range b {
			out = fmt.Appendf(out, "%08b", v)
		}
		return out
	case "packed":
		for _, v := range b {
			out = protowire.AppendVarint(out, uint64(v))
		}
		return out
	}
	return b
}

func TestPayloads(t *testing.T) {
	for _, form := range payloads {
		want := []byte{0, 1, 127, 128, 200, 255}
		data := pack(form, want)
		if len(data) > payloadSize(form, len(want)) {
			t.Errorf("%s: %d bytes take %d, said were %d", form, len(want), len(data), payloadSize(form, len(want)))
		}
		got := make([]byte, len(want))
		if err := unpack(form, got, data); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %x, %v", form, got, err)
		}
		for name, bad := range map[string][]byte{
			"short": pack(form, want[:5]), "long": pack(form, append(want, 1)), "empty": nil, "cut": data[:len(data)-1], "more": append(bytes.Clone(data), '0'),
		} {
			buf := bytes.Repeat([]byte{0xa5}, len(want))
			if err := unpack(form, buf, bad); err == nil {
				t.Errorf("%s: a %s payload is accepted: %x", form, name, buf)
			}
		}
	}
	for form, bad := range map[string]string{"hex": "0g", "base64": "!!==", "bits": "01010102", "packed": "\xff\x7f"} {
		if err := unpack(form, make([]byte, 1), []byte(bad)); err == nil {
			t.Errorf("%s: %q is accepted", form, bad)
		}
	}
}

func FuzzPayload(f *testing.F) {
	for _, form := range payloads {
		f.Add(form, pack(form, []byte{0, 128, 255}), 3)
	}
	f.Fuzz(func(t *testing.T, form string, data []byte, n int) {
		if n < 0 || n > 1000 {
			return
		}
		buf := make([]byte, n)
		if unpack(form, buf, data) != nil {
			return
		}
		// What is accepted has a form that makes the same bytes.
		again := make([]byte, n)
		if err := unpack(form, again, pack(form, buf)); err != nil || !bytes.Equal(again, buf) {
			t.Fatalf("%s: %x becomes %x, %v", form, buf, again, err)
		}
	})
}
