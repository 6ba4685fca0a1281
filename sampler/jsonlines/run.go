// Package jsonlines is the sampler without a model: a line of JSON with logits and what the number is made of comes in, a line with the
// token and everything that decided it goes out. It is for experiments, for teaching and for comparing samplers with each other.
//
// A line that can't be done is answered with an error in its place; the lines after it are done all the same. Nothing is shared: each Run has
// its own streams.
package jsonlines

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"qr-gateway/sampler"
)

// MaxLine is the longest line, in bytes: a row of 1,000,000 logits with every digit has room.
const MaxLine = 64 << 20

// maxStreams and maxPlaces, the tokens of the vocabularies of all streams together, bound the memory that streams take: some 80 bytes a place.
const (
	maxStreams = 1024
	maxPlaces  = 32 << 20
)

// Summary counts lines.
type Summary struct {
	Lines, Failed int
}

// runner is one Run.
type runner struct {
	base    sampler.Params
	presets sampler.Presets
	out     *json.Encoder
	streams map[string]*session
	places  int // of all streams
	sum     Summary
}

// Run answers every line of in with a line of out, until in ends. base are the parameters of a line that gives none; presets, which may be
// nil, are those that a line may name. An error is one of reading or writing; lines that failed are counted.
func Run(base sampler.Params, presets sampler.Presets, in io.Reader, out io.Writer) (Summary, error) {
	buffered := bufio.NewWriter(out)
	r := &runner{base: base, presets: presets, out: json.NewEncoder(buffered), streams: map[string]*session{}}
	scan := bufio.NewScanner(in)
	scan.Buffer(make([]byte, 1<<16), MaxLine)
	for scan.Scan() {
		if len(bytes.TrimSpace(scan.Bytes())) == 0 {
			continue
		}
		r.sum.Lines++
		if err := errors.Join(r.answer(scan.Bytes()), buffered.Flush()); err != nil {
			return r.sum, fmt.Errorf("write answer %d: %w", r.sum.Lines, err)
		}
	}
	if err := scan.Err(); errors.Is(err, bufio.ErrTooLong) {
		return r.sum, fmt.Errorf("read line %d: it is longer than %d MiB", r.sum.Lines+1, MaxLine>>20)
	} else if err != nil {
		return r.sum, fmt.Errorf("read line %d: %w", r.sum.Lines+1, err)
	}
	return r.sum, nil
}

// failure is the answer to a line that can't be done.
type failure struct {
	Line   int    `json:"line"`
	Stream string `json:"stream,omitempty"`
	Error  struct {
		Message string `json:"message"`
		Param   string `json:"param,omitempty"`
	} `json:"error"`
}

// answer does one line. Its error is one of writing.
func (r *runner) answer(data []byte) error {
	var line Line
	result, err := r.do(data, &line)
	if err == nil {
		return r.out.Encode(result)
	}
	r.sum.Failed++
	r.end(line.Stream)
	f := failure{Line: r.sum.Lines, Stream: line.Stream}
	f.Error.Message = err.Error()
	if e, ok := errors.AsType[*sampler.ParamError](err); ok {
		f.Error.Param = e.Key
	}
	return r.out.Encode(f)
}

func (r *runner) do(data []byte, line *Line) (*Result, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	dec.UseNumber() // a seed is not rounded
	if err := dec.Decode(line); err != nil {
		return nil, fmt.Errorf("read line: %w", plain(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read line: text follows the object")
	}
	if err := line.check(); err != nil {
		return nil, err
	}
	s, err := r.session(line)
	if err != nil {
		return nil, err
	}
	result, err := s.next(line)
	if err != nil {
		return nil, err
	}
	result.Line, result.Stream = r.sum.Lines, line.Stream
	return result, nil
}

// end lets nothing go on after a line that failed: what follows was meant to build on it. The first error counts.
func (r *runner) end(stream string) {
	s := r.streams[stream]
	if stream == "" || s != nil && s.failed > 0 || s == nil && len(r.streams) == maxStreams {
		return
	}
	if s != nil {
		r.places -= s.vocab
	}
	r.streams[stream] = &session{failed: r.sum.Lines}
}

// plain says what is of the wrong type without the names of Go.
func plain(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return fmt.Errorf("it is JSON, but no object: %s", wrong.Value)
		}
		return fmt.Errorf("%s can't be a JSON %s", wrong.Field, wrong.Value)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// session is the answer that the line belongs to.
func (r *runner) session(line *Line) (*session, error) {
	if s := r.streams[line.Stream]; s != nil && line.Stream != "" {
		return s, s.same(line)
	}
	s, err := newSession(r.base, r.presets, line)
	if err != nil || line.Stream == "" {
		return s, err
	}
	if len(r.streams) == maxStreams || r.places+s.vocab > maxPlaces {
		return nil, fmt.Errorf("stream %q is one too many: there are %d already; a run has up to %d, with %d tokens in all vocabularies together",
			line.Stream, len(r.streams), maxStreams, maxPlaces)
	}
	r.places += s.vocab
	r.streams[line.Stream] = s
	return s, nil
}
