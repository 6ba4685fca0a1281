package grpc

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"google.golang.org/protobuf/proto"

	"qr-gateway/entropy/entropypb"
)

// FuzzDecode: whatever comes, the client's decoders accept and read exactly what protobuf does.
func FuzzDecode(f *testing.F) {
	text, err := os.ReadFile("testdata/wire.json")
	if err != nil {
		f.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		f.Fatal(err)
	}
	for _, c := range append(v.Cases, append(v.Client, v.Defects...)...) {
		f.Add(unhexString(c.Hex))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		for name, right := range map[string]proto.Message{"EntropyResponse": &entropypb.EntropyResponse{}, "DrawResponse": &entropypb.DrawResponse{}} {
			want := proto.Unmarshal(msg, right)
			got, err := decode(name, msg)
			if (err != nil) != (want != nil) {
				t.Fatalf("%s %x: error %v, protobuf says %v", name, msg, err, want)
			}
			if err != nil && !errors.Is(err, errWire) {
				t.Fatalf("%s %x: untyped error %v", name, msg, err)
			}
			if err == nil && !same(got, right) {
				t.Fatalf("%s %x: %v, protobuf says %v", name, msg, got, right)
			}
		}
		if echo, err := published().echoOf(msg); err == nil {
			if r, err := published().decode(msg); err == nil && r.echo != echo {
				t.Fatalf("%x: echo %d and %d", msg, echo, r.echo)
			}
		}
	})
}
