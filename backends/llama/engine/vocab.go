package engine

import "bytes"

// TokenFlags are the properties of a token.
type TokenFlags uint8

// The values are those of the C interface.
const (
	TokenHidden  TokenFlags = 1 << iota // not part of the text as shown
	TokenControl                        // marks structure: turns, roles, beginnings
	TokenEOG                            // ends a generation
)

// Vocab is a model's vocabulary, copied out of the model once. It is immutable and safe for concurrent use. A model
// without a tokenizer has a vocabulary of empty pieces.
type Vocab struct {
	AddBOS bool  // the tokenizer puts BOS before a text when asked for special tokens
	BOS    int32 // -1 = none
	// LeadingSpace: the tokenizer puts a space before a text, as SentencePiece does. Detokenize takes it off again; the
	// pieces of an answer keep theirs, since an answer goes on behind a prompt.
	LeadingSpace bool

	text  []byte   // all pieces, one behind the other
	ends  []uint32 // where each piece ends in text
	flags []TokenFlags

	longest int // bytes of the longest piece
}

// NewVocab makes a vocabulary of pieces without a model. flags may be shorter than pieces.
func NewVocab(pieces []string, flags []TokenFlags) *Vocab {
	v := &Vocab{BOS: -1, ends: make([]uint32, len(pieces)), flags: make([]TokenFlags, len(pieces))}
	copy(v.flags, flags)
	for i, p := range pieces {
		v.text = append(v.text, p...)
		v.ends[i] = uint32(len(v.text))
	}
	v.measure()
	return v
}

func (v *Vocab) measure() {
	for id := range v.ends {
		v.longest = max(v.longest, len(v.SpecialPiece(int32(id))))
	}
}

// Len is the number of tokens.
func (v *Vocab) Len() int { return len(v.ends) }

// Piece returns the bytes token id adds to the text as shown: nothing for control tokens, and not always whole UTF-8.
// The caller must not change them. Unknown ids have no bytes.
func (v *Vocab) Piece(id int32) []byte {
	if v.has(id, TokenHidden) {
		return nil
	}
	return v.SpecialPiece(id)
}

// SpecialPiece is Piece with control tokens spelt out.
func (v *Vocab) SpecialPiece(id int32) []byte {
	if id < 0 || int(id) >= len(v.ends) {
		return nil
	}
	start := uint32(0)
	if id > 0 {
		start = v.ends[id-1]
	}
	return v.text[start:v.ends[id]:v.ends[id]]
}

// EOG reports whether id ends a generation.
func (v *Vocab) EOG(id int32) bool { return v.has(id, TokenEOG) }

// Control reports whether id is a control token.
func (v *Vocab) Control(id int32) bool { return v.has(id, TokenControl) }

// MinTokens is the least number of tokens that a text of so many bytes can have, for refusing a text that is too long
// before the work of tokenizing it.
func (v *Vocab) MinTokens(textBytes int) int {
	if v.longest == 0 {
		return 0
	}
	return textBytes / v.longest
}

// Detokenize is the text that ids were made of: the inverse of Model.Tokenize.
func (v *Vocab) Detokenize(ids []int32, special bool) []byte {
	piece := v.Piece
	if special {
		piece = v.SpecialPiece
	}
	var text []byte
	for _, id := range ids {
		text = append(text, piece(id)...)
	}
	if v.LeadingSpace {
		return bytes.TrimPrefix(text, []byte(" "))
	}
	return text
}

func (v *Vocab) has(id int32, f TokenFlags) bool {
	return id >= 0 && int(id) < len(v.flags) && v.flags[id]&f != 0
}
