package sampler

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
)

// SaltSize is the number of random bytes that the nonces of a request are salted with.
const SaltSize = 16

// ErrNonce says that a record's nonce is not the one that its salt, step and previous token give.
var ErrNonce = errors.New("nonce does not match")

// Nonce is the number that a request for bytes carries when it is sent before the logits exist: the first 8 bytes, big-endian, of
// SHA-256(salt, step as 8 bytes little-endian, previous token as 8 bytes little-endian signed), with the top bit cleared, and 1 for 0. The
// previous token of step 0 is -1. It commits to what was known when the request was sent.
func Nonce(salt []byte, step uint64, previous int64) uint64 {
	var room [64]byte
	b := append(room[:0], salt...)
	b = binary.LittleEndian.AppendUint64(b, step)
	b = binary.LittleEndian.AppendUint64(b, uint64(previous))
	sum := sha256.Sum256(b)
	return max(binary.BigEndian.Uint64(sum[:8])&^(1<<63), 1)
}

// VerifyNonce works the nonce of a record out again. A record without a request sent ahead has none to verify, which is an error too.
func VerifyNonce(r *Record) error {
	if r.Nonce == "" {
		return fmt.Errorf("verify nonce of step %d: its bytes were not asked for ahead", r.Step)
	}
	salt, err := hex.DecodeString(r.Salt)
	if err != nil {
		return fmt.Errorf("verify nonce of step %d: salt: %w", r.Step, err)
	}
	nonce, err := strconv.ParseUint(r.Nonce, 16, 64)
	if err != nil {
		return fmt.Errorf("verify nonce of step %d: %w", r.Step, err)
	}
	if want := Nonce(salt, uint64(r.Step), int64(r.Previous)); nonce != want {
		return fmt.Errorf("verify nonce of step %d: it is %016x, salt, step and previous token give %016x: %w", r.Step, nonce, want, ErrNonce)
	}
	return nil
}
