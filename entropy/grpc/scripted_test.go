package grpc_test

import (
	"net"
	"strings"
	"testing"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// rawCodec passes bytes, on the server's side of the tests.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(b mem.BufferSlice, v any) error {
	*v.(*[]byte) = b.Materialize()
	return nil
}

// exchange is one call or stream at a scripted server.
type exchange struct {
	rpc.ServerStream
	t      *testing.T
	method string
}

// next returns the count and number of the next request, or false when there is none.
func (e exchange) next() (n int, seq int64, more bool) {
	var msg []byte
	if e.RecvMsg(&msg) != nil {
		return 0, 0, false
	}
	n64, seq := varint(msg, 1), int64(varint(msg, 2))
	return int(n64), seq, true
}

// metadata returns the values that the caller sent under a name.
func (e exchange) metadata(name string) []string {
	return metadata.ValueFromIncomingContext(e.Context(), name)
}

func varint(msg []byte, field protowire.Number) uint64 {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		v, _ := protowire.ConsumeVarint(msg[n:])
		if num == field {
			return v
		}
		msg = msg[n+protowire.ConsumeFieldValue(num, typ, msg[n:]):]
	}
	return 0
}

// reply sends n bytes of value fill, with an echo unless it is 0.
func (e exchange) reply(n int, fill byte, seq int64) {
	msg := protowire.AppendTag(nil, 1, protowire.BytesType)
	msg = protowire.AppendBytes(msg, []byte(strings.Repeat(string(rune(fill)), n)))
	if seq != 0 {
		msg = protowire.AppendVarint(protowire.AppendTag(msg, 2, protowire.VarintType), uint64(seq))
	}
	e.send(msg)
}

func (e exchange) send(msg []byte) { _ = e.SendMsg(msg) }

// scripted runs a server whose every call and stream is served by script, and returns its address.
func scripted(t *testing.T, script func(e exchange) error) string {
	t.Helper()
	address := socket(t)
	l, err := net.Listen("unix", strings.TrimPrefix(address, "unix://"))
	if err != nil {
		t.Fatal(err)
	}
	s := rpc.NewServer(rpc.ForceServerCodecV2(rawCodec{}), rpc.UnknownServiceHandler(func(_ any, stream rpc.ServerStream) error {
		method, _ := rpc.MethodFromServerStream(stream)
		if strings.HasPrefix(method, "/grpc.health") {
			return status.Error(codes.Unimplemented, "no health service")
		}
		return script(exchange{stream, t, method})
	}))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return address
}
