package fake

import (
	"hash/fnv"
	"strings"
)

// firstWord is the id after those of the 256 bytes.
const firstWord = 256

// words end with a space or a mark, so that an answer reads like a text; some are not ASCII, so that a stream that cuts
// characters is found out.
func words() []string {
	return []string{
		"the ", "a ", "light ", "of ", "and ", "in ", "river ", "slowly ", "turned ", "over ", "night ", "door ",
		"stone ", "who ", "had ", "seen ", "nothing ", "but ", "rain ", "again ", "opened ", "under ", "winter ", "sea ",
		"größe ", "café ", "naïve ", "日本 ", "мир ", "😀 ", "quiet. ", "then,\n",
	}
}

func vocabulary() int { return firstWord + len(words()) }

func wordText(id int32) string { return words()[id-firstWord] }

// tokenize takes the known words where they stand and bytes elsewhere.
func tokenize(text string) []int32 {
	var out []int32
	for text != "" {
		id, n := nextToken(text)
		out = append(out, id)
		text = text[n:]
	}
	return out
}

func nextToken(text string) (id int32, length int) {
	for i, w := range words() {
		if strings.HasPrefix(text, w) {
			return firstWord + int32(i), len(w)
		}
	}
	return int32(text[0]), 1
}

// start hashes what the whole answer depends on.
func start(tokens []int32, seed *int64) uint64 {
	h := fnv.New64a()
	for _, t := range tokens {
		h.Write([]byte{byte(t), byte(t >> 8)})
	}
	if seed != nil {
		s := uint64(*seed)
		h.Write([]byte{0xff, byte(s), byte(s >> 8), byte(s >> 16), byte(s >> 24), byte(s >> 32), byte(s >> 40), byte(s >> 48), byte(s >> 56)})
	}
	return h.Sum64()
}

// mix is the finaliser of splitmix64 (Steele, Lea and Flood 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// next is the token at a step, and whether the text ends there: never before 8 tokens, then at 1 in 32.
func next(state uint64, step int) (id int32, end bool) {
	r := mix(state + uint64(step)*0x632be59bd9b4e019)
	return firstWord + int32(r%uint64(len(words()))), step >= 8 && r>>32%32 == 0
}
