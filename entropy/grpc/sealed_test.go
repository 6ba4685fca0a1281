package grpc_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"qr-gateway/entropy"
	"qr-gateway/entropy/server"
)

// sealed is a source whose blocks of 48 bytes and more say for which request they were made, and carry a seal over all of their bytes:
// number, seal, random bytes.
type sealed struct{ entropy.Source }

const sealStart, sealEnd = 8, 8 + sha256.Size

func (s sealed) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	b, err := s.Source.Draw(ctx, buf)
	if err != nil || len(buf) < sealEnd+8 {
		return b, err
	}
	seq, _ := server.SequenceOf(ctx)
	binary.BigEndian.PutUint64(buf, uint64(seq))
	copy(buf[sealStart:], seal(buf))
	return b, nil
}

func seal(buf []byte) []byte {
	mac := hmac.New(sha256.New, []byte("blocks of the tests"))
	mac.Write(buf[:sealStart])
	mac.Write(buf[sealEnd:])
	return mac.Sum(nil)
}

// unseal returns the number in a block, or an error if one of its bytes is not the server's.
func unseal(buf []byte) (uint64, error) {
	if !hmac.Equal(buf[sealStart:sealEnd], seal(buf)) {
		return 0, fmt.Errorf("block of %d bytes is not as it was made", len(buf))
	}
	return binary.BigEndian.Uint64(buf), nil
}
