package worker

import (
	"strings"

	"qr-gateway/backends/llama/engine"
	"qr-gateway/backends/text"
)

// parseEvery says how often the growing text is split into content and reasoning: when it has grown by a 256th part.
// The work per token then stays bounded, and short texts are split at every token.
const parseEvery = 256

// Parser splits the text of an answer; partial texts are allowed with partial set. It is safe for concurrent use.
type Parser func(format []byte, text string, partial bool) (engine.ChatMessage, error)

// answer turns pieces of tokens into text to send.
type answer struct {
	stops   *text.Stops
	decoder text.Decoder
	bytes   []byte // scratch: bytes that are no stop string
	text    []byte // scratch: text ready to go

	parse  Parser // nil: all text is content
	format []byte
	whole  []byte // text so far, when it is parsed
	parsed int    // length of whole when it was last parsed
	sent   engine.ChatMessage
}

// newAnswer makes an answer. With a format, parse splits the text.
func newAnswer(stops *text.Stops, parse Parser, format []byte) *answer {
	a := &answer{stops: stops, format: format}
	if len(format) > 0 {
		a.parse = parse
	}
	return a
}

// add takes the bytes of one token and returns what can be sent now, and whether a stop string has ended the text.
func (a *answer) add(piece []byte) (content, reasoning string, stopped bool) {
	a.bytes, stopped = a.stops.Append(a.bytes[:0], piece)
	a.text = a.decoder.Append(a.text[:0], a.bytes)
	if stopped {
		a.text = a.decoder.Flush(a.text)
	}
	content, reasoning = a.split(stopped)
	return content, reasoning, stopped
}

// end returns what was held back.
func (a *answer) end() (content, reasoning string) {
	a.bytes = a.stops.Flush(a.bytes[:0])
	a.text = a.decoder.Append(a.text[:0], a.bytes)
	a.text = a.decoder.Flush(a.text)
	return a.split(true)
}

// split sorts the new text into content and reasoning.
func (a *answer) split(last bool) (content, reasoning string) {
	if a.parse == nil {
		return string(a.text), ""
	}
	a.whole = append(a.whole, a.text...)
	grown := len(a.whole) - a.parsed
	if !last && (grown == 0 || grown < len(a.whole)/parseEvery) {
		return "", ""
	}
	a.parsed = len(a.whole)
	now, err := a.parse(a.format, string(a.whole), !last)
	if err != nil {
		return a.unparsed(last)
	}
	content, a.sent.Content = growth(a.sent.Content, now.Content)
	reasoning, a.sent.Reasoning = growth(a.sent.Reasoning, now.Reasoning)
	return content, reasoning
}

// unparsed handles a text that the template's parser refuses. A partial one may be parsed later; a final one is passed on
// as content if nothing was sent yet: the words the model said are worth more than their form.
func (a *answer) unparsed(last bool) (content, reasoning string) {
	if !last || a.sent.Content != "" || a.sent.Reasoning != "" {
		return "", ""
	}
	return string(a.whole), ""
}

// growth returns what now has beyond sent, and what has been sent after that. A parser may take back the end of a partial
// text (the beginning of a tag, say); then nothing is sent until the text has grown past it again.
func growth(sent, now string) (more, after string) {
	if !strings.HasPrefix(now, sent) {
		return "", sent
	}
	return now[len(sent):], now
}
