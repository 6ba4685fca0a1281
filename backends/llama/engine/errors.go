package engine

import (
	"errors"
	"fmt"
)

// Errors to be matched with errors.Is. All carry more text where there is more to say.
var (
	// ErrNotBuilt: the binary was built without llama.cpp.
	ErrNotBuilt = errors.New("built without the llama engine: build with -tags llama and cgo")
	// ErrClosed: the model, pool or context was closed.
	ErrClosed = errors.New("closed")
	// ErrNoTokenizer: the model has token ids but no tokenizer.
	ErrNoTokenizer = errors.New("the model has no tokenizer")
	// ErrNoTemplate: the model carries no chat template.
	ErrNoTemplate = errors.New("the model has no chat template: use plain completions")
	// ErrBadInput: messages, template arguments or text that can't be read.
	ErrBadInput = errors.New("bad input")

	// ErrNoCells: the KV cache has no free cells for the batch. Nothing changed.
	ErrNoCells = errors.New("no free KV cells")
	// ErrContextFull: a position at or past the context's size. Nothing changed.
	ErrContextFull = errors.New("context full")
	// ErrInterrupted: Interrupt was called. With attention memory what was decoded of the batch stays (see PosMax) and
	// decoding may go on behind it. On hybrid and recurrent memory the sequences of the batch are stale: see ErrStale.
	ErrInterrupted = errors.New("interrupted")
	// ErrStale: the sequence lost its state in an interrupted or failed decode. Remove it whole, or copy another over it.
	ErrStale = errors.New("stale sequence")
	// ErrBadBatch: the batch was refused. Nothing changed.
	ErrBadBatch = errors.New("bad batch")
	// ErrBatchFull: the batch holds as many tokens as it can.
	ErrBatchFull = errors.New("batch full")
	// ErrCompute: llama.cpp failed in mid-decode. The context should be cleared or closed.
	ErrCompute = errors.New("compute failed")
	// ErrBadArgument: an id or a range that does not exist. Nothing changed.
	ErrBadArgument = errors.New("bad argument")
)

// ModelError says why a model file can't be used.
type ModelError struct {
	Path   string
	Reason string
	Hint   string // what to do, or empty
	Err    error  // cause, or nil
}

func (e *ModelError) Error() string {
	if e.Hint == "" {
		return fmt.Sprintf("load model %s: %s", e.Path, e.Reason)
	}
	return fmt.Sprintf("load model %s: %s (%s)", e.Path, e.Reason, e.Hint)
}

// Unwrap returns the cause.
func (e *ModelError) Unwrap() error { return e.Err }

// TemplateError is the chat template's own refusal of a conversation, in its words.
type TemplateError struct {
	Message string
}

func (e *TemplateError) Error() string { return "apply chat template: " + e.Message }
