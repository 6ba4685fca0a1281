package peek

import (
	"context"
	"strings"
	"unicode/utf8"
)

// A text grows token by token, and what a token adds depends on those before it: the tokens since a place where the text was whole are spelled
// together, with a few before them whose text is known.
const (
	spelled = 64 // tokens that are spelled together, at most where the text allows
	lead    = 8  // of those, tokens whose text is known when a new place is taken
)

// speller turns tokens into text.
type speller struct {
	b      *Backend
	window []int32 // tokens that are spelled together
	known  string  // text of the window that has been given out
}

// begin takes the end of the prompt as the place to start from.
func (s *speller) begin(ctx context.Context, prompt []int32) error {
	return s.place(ctx, prompt)
}

// place starts a new window with the last tokens of text.
func (s *speller) place(ctx context.Context, text []int32) error {
	s.window = append([]int32(nil), text[max(0, len(text)-lead):]...)
	known, err := s.b.spell(ctx, s.window)
	s.known = whole(known) // the answer may go on within a character
	return err
}

// add is the text that token adds. It holds back what may be the beginning of a character.
func (s *speller) add(ctx context.Context, token int32) (string, error) {
	s.window = append(s.window, token)
	text, err := s.b.spell(ctx, s.window)
	if err != nil {
		return "", err
	}
	more := s.growth(whole(text))
	if len(s.window) >= spelled && whole(text) == text {
		err = s.place(ctx, s.window)
	}
	return more, err
}

// end is the text that was held back.
func (s *speller) end(ctx context.Context) (string, error) {
	text, err := s.b.spell(ctx, s.window)
	return s.growth(text), err
}

// growth is what text has beyond what has been given out.
func (s *speller) growth(text string) string {
	more, ok := strings.CutPrefix(text, s.known)
	if !ok || more == "" {
		return ""
	}
	s.known = text
	return more
}

// whole is text without replacement characters at its end: they may be the beginning of a character.
func whole(text string) string {
	for i := 0; i < utf8.UTFMax && strings.HasSuffix(text, "\ufffd"); i++ {
		text = strings.TrimSuffix(text, "\ufffd")
	}
	return text
}
