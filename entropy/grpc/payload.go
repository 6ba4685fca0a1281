package grpc

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// payloads are the forms in which servers send bytes.
var payloads = []string{"raw", "hex", "base64", "bits", "packed"}

// payloadSize is what n bytes take on the wire at most.
func payloadSize(form string, n int) int {
	switch form {
	case "hex", "packed":
		return 2 * n
	case "base64":
		return base64.StdEncoding.EncodedLen(n)
	case "bits":
		return 8 * n
	}
	return n
}

// unpack decodes data into buf and fails unless it fills it exactly. buf is not touched before the length is known to be right.
func unpack(form string, buf, data []byte) error {
	switch form {
	case "hex":
		return unpackHex(buf, data)
	case "base64":
		return unpackBase64(buf, data)
	case "bits":
		return unpackBits(buf, data)
	case "packed":
		return unpackVarints(buf, data)
	}
	if len(data) != len(buf) {
		return lengthError(len(buf), len(data))
	}
	copy(buf, data)
	return nil
}

func lengthError(want, got int) error {
	switch {
	case got == 0:
		return fmt.Errorf("the reply has no bytes, asked for %d", want)
	case got < want:
		return fmt.Errorf("the reply is short: %d bytes, asked for %d", got, want)
	}
	return fmt.Errorf("the reply is long: %d bytes, asked for %d", got, want)
}

func unpackHex(buf, data []byte) error {
	if len(data) != 2*len(buf) {
		return lengthError(len(buf), len(data)/2)
	}
	if _, err := hex.Decode(buf, data); err != nil {
		return fmt.Errorf("the reply is not hexadecimal: %w", err)
	}
	return nil
}

func unpackBase64(buf, data []byte) error {
	got, err := base64.StdEncoding.AppendDecode(nil, data)
	switch {
	case err != nil:
		return fmt.Errorf("the reply is not base64: %w", err)
	case len(got) != len(buf):
		return lengthError(len(buf), len(got))
	}
	copy(buf, got)
	return nil
}

// unpackBits reads characters 0 and 1, the highest bit of a byte first.
func unpackBits(buf, data []byte) error {
	if len(data) != 8*len(buf) {
		return lengthError(len(buf), len(data)/8)
	}
	if i := slices.IndexFunc(data, func(c byte) bool { return c != '0' && c != '1' }); i >= 0 {
		return fmt.Errorf("the reply is not a row of bits: it has %q at %d", data[i], i)
	}
	for i := range buf {
		var v byte
		for _, c := range data[8*i : 8*i+8] {
			v = v<<1 | c&1
		}
		buf[i] = v
	}
	return nil
}

// unpackVarints reads a packed field of small numbers, one a byte.
func unpackVarints(buf, data []byte) error {
	got := make([]byte, 0, len(buf))
	for len(data) > 0 {
		v, n := protowire.ConsumeVarint(data)
		if n < 0 || v > 255 {
			return fmt.Errorf("the reply is not a row of numbers from 0 to 255: wrong at %d", len(got))
		}
		got, data = append(got, byte(v)), data[n:]
	}
	if len(got) != len(buf) {
		return lengthError(len(buf), len(got))
	}
	copy(buf, got)
	return nil
}
