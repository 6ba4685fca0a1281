package amplify

import "encoding/binary"

const (
	evenBytes = 0x00ff00ff00ff00ff
	evenPairs = 0x0000ffff0000ffff
	// wordsPerFold is how many words fit before a 16-bit lane may overflow: 128 * 2 * 255 < 2^16.
	wordsPerFold = 128
)

// Sum adds the bytes of block, eight at a time: the bytes of a word are added into four lanes of 16 bits, and the lanes into one number
// before one can overflow.
func Sum(block []byte) uint64 {
	var total uint64
	for len(block) >= 8 {
		n := min(len(block)/8, wordsPerFold) * 8
		total += fold(lanes(block[:n]))
		block = block[n:]
	}
	for _, b := range block {
		total += uint64(b)
	}
	return total
}

// lanes adds the bytes of at most wordsPerFold words into four lanes.
func lanes(words []byte) uint64 {
	var even, odd uint64
	for len(words) >= 32 {
		a, b := binary.LittleEndian.Uint64(words), binary.LittleEndian.Uint64(words[8:16])
		c, d := binary.LittleEndian.Uint64(words[16:24]), binary.LittleEndian.Uint64(words[24:32])
		even += a&evenBytes + b&evenBytes + c&evenBytes + d&evenBytes
		odd += a>>8&evenBytes + b>>8&evenBytes + c>>8&evenBytes + d>>8&evenBytes
		words = words[32:]
	}
	for len(words) >= 8 {
		a := binary.LittleEndian.Uint64(words)
		even += a & evenBytes
		odd += a >> 8 & evenBytes
		words = words[8:]
	}
	return even + odd
}

// fold adds four lanes of 16 bits.
func fold(l uint64) uint64 {
	l = l&evenPairs + l>>16&evenPairs
	return l&0xffffffff + l>>32
}
