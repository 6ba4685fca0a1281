package wire

import (
	"crypto/sha256"
	"encoding/hex"
)

// Protocol is the version that both sides must speak.
const Protocol = 1

// Schema lists every format of the protocol. The plugin has the same text, letter for letter, and its hash is in the hello: two sides that
// differ don't talk to each other.
const Schema = `qr-sidecar 1
all numbers little-endian; sizes and lengths in bytes; texts UTF-8
frame: header <IBBHQ size of the body (at most 67108864), kind, flags, count, seq; then the body
kind 1 hello, plugin to sidecar, first: JSON object; a memfd sealed F_SEAL_SHRINK comes with it by SCM_RIGHTS
kind 2 welcome, sidecar to plugin: JSON object
kind 3 refuse, sidecar to plugin, then the connection is closed: JSON object code, message, hint
kind 4 begin, plugin to sidecar: <IIIIHHI handle, step, n_prompt, n_history, rid length, fail (0 stop, 1 native: of a row whose number is late), cfg length; rid; cfg; n_prompt x <i; n_history x <i (-1 not known)
kind 5 end, plugin to sidecar: count x <I handle
kind 6 step, plugin to sidecar: count x <IIHBBIfffI handle, step, k, form, 0, slot, max, lse, entropy, finite; then of all rows of form 0 in order k x <i ids; then of these k x <f logits; then of all rows of form 2 in order vocab x <f logits
form 0 compact, k is min(top, vocab); 1 whole row in the memfd at slot x stride, k is 0; 2 whole row in the frame, k is 0; max, lse, entropy and finite are read in form 0 only
logits are float32, -inf is forbidden; in form 0 the entries beyond the finite ones are id -1, logit -inf
step flags bit 0 rest: the seq before again, with the whole rows that were asked for
kind 7 choice, sidecar to plugin: same seq, same count and order; count x <iBBH token (-1 none), status, 0, 0
status 0 token, 1 whole row needed, 2 native, 3 stop, 4 no legal token, 5 unknown handle
flags, count and seq are 0 where nothing is said of them; seq of step rises by one from 1
`

// Hash is what both sides compare: the first 16 hex digits of the SHA-256 of Schema.
func Hash() string {
	sum := sha256.Sum256([]byte(Schema))
	return hex.EncodeToString(sum[:8])
}
