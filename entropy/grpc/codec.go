package grpc

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// codec passes messages through as bytes, so that any method of any service can be called without generated code. It calls itself proto,
// which is what the bytes are.
type codec struct{}

// frame receives one message. Its owner frees buf.
type frame struct{ buf mem.Buffer }

// Marshal implements encoding.CodecV2. The bytes are sent later: nobody may change them.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("send %T: want bytes", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("receive into %T: want a frame", v)
	}
	f.buf = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}

// Name implements encoding.CodecV2.
func (codec) Name() string { return "proto" }
