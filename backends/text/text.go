// Package text turns token pieces, which are bytes, into text that is safe to send: [Stops] finds stop strings in the
// bytes and holds back what may still become one, [Decoder] lets out whole UTF-8 only. Both give the same text however
// the bytes were cut into pieces. A value of either belongs to one goroutine and to one answer.
package text

import "unicode/utf8"

// Decoder passes on whole UTF-8 sequences and keeps the beginning of one until its rest arrives. Every byte that cannot
// be part of a sequence becomes U+FFFD, as in a conversion to []rune. The zero value is ready.
type Decoder struct {
	tail [utf8.UTFMax]byte
	n    int
}

// Append adds to dst the text that piece completes and returns the longer slice.
func (d *Decoder) Append(dst, piece []byte) []byte {
	for d.n > 0 && len(piece) > 0 {
		d.tail[d.n] = piece[0]
		d.n++
		piece = piece[1:]
		dst = d.settle(dst)
	}
	for len(piece) > 0 {
		if !utf8.FullRune(piece) {
			d.n = copy(d.tail[:], piece)
			return dst
		}
		_, n := utf8.DecodeRune(piece)
		dst = appendRune(dst, piece[:n])
		piece = piece[n:]
	}
	return dst
}

// settle moves whole runes from the tail to dst until what is left is the beginning of one.
func (d *Decoder) settle(dst []byte) []byte {
	for d.n > 0 && utf8.FullRune(d.tail[:d.n]) {
		_, n := utf8.DecodeRune(d.tail[:d.n])
		dst = appendRune(dst, d.tail[:n])
		d.n = copy(d.tail[:], d.tail[n:d.n])
	}
	return dst
}

// Flush adds what was held back, each byte of it as U+FFFD, and leaves d empty.
func (d *Decoder) Flush(dst []byte) []byte {
	for range d.n {
		dst = utf8.AppendRune(dst, utf8.RuneError)
	}
	d.n = 0
	return dst
}

// appendRune copies one decoded rune; a single byte that is no rune becomes U+FFFD.
func appendRune(dst, seq []byte) []byte {
	if len(seq) == 1 && seq[0] >= utf8.RuneSelf {
		return utf8.AppendRune(dst, utf8.RuneError)
	}
	return append(dst, seq...)
}
