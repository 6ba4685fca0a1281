package grpc_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/server"
)

// sealed is a source whose blocks of 64 bytes and more say for which request they were made and when, and carry a seal over all of their
// bytes: number, time, seal, random bytes.
type sealed struct{ entropy.Source }

const sealStart, sealEnd = 16, 16 + sha256.Size

func (s sealed) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	b, err := s.Source.Draw(ctx, buf)
	if err != nil || len(buf) < sealEnd+16 {
		return b, err
	}
	seq, _ := server.SequenceOf(ctx)
	binary.BigEndian.PutUint64(buf, uint64(seq))
	binary.BigEndian.PutUint64(buf[8:], uint64(time.Now().UnixNano()))
	copy(buf[sealStart:], seal(buf))
	return b, nil
}

func seal(buf []byte) []byte {
	mac := hmac.New(sha256.New, []byte("blocks of the tests"))
	mac.Write(buf[:sealStart])
	mac.Write(buf[sealEnd:])
	return mac.Sum(nil)
}

// checkSealed says what is wrong with a block: a byte that is not the server's, made for another request, or made before it was asked for.
func checkSealed(b entropy.Block) error {
	buf := b.Bytes
	if !hmac.Equal(buf[sealStart:sealEnd], seal(buf)) {
		return fmt.Errorf("block %d of %d bytes is not as it was made", b.Sequence, len(buf))
	}
	want := b.Sequence
	if b.Pipelined {
		want = b.Nonce
	}
	if seq := binary.BigEndian.Uint64(buf); seq != want {
		return fmt.Errorf("block %d was made for request %d", want, seq)
	}
	if made := time.Unix(0, int64(binary.BigEndian.Uint64(buf[8:]))); made.Before(b.Requested.Round(0)) {
		return fmt.Errorf("block %d was made %v before it was asked for", b.Sequence, b.Requested.Sub(made))
	}
	return nil
}
