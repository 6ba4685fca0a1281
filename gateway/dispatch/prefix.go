package dispatch

import (
	"encoding/binary"
	"hash/fnv"

	"qr-gateway/gateway/queue"
)

// block is how many tokens a prefix has at least, and a multiple of which all have.
const block = 64

// Prefixes are hashes of growing prefixes of a prompt, the longest last. Their lengths are the same for every prompt, so that
// two prompts that begin alike have the same ones: each block at first, then each eighth of what is there already.
func Prefixes(model string, tokens []int32) []uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(model)) // it never fails
	var out []uint64
	done, word := 0, make([]byte, 4)
	for length := block; length <= len(tokens) && len(out) < queue.MaxPrefixes; length = longer(length) {
		for ; done < length; done++ {
			binary.LittleEndian.PutUint32(word, uint32(tokens[done]))
			_, _ = h.Write(word)
		}
		out = append(out, h.Sum64())
	}
	return out
}

func longer(length int) int { return length + max(block, length/8/block*block) }
