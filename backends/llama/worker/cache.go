package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"qr-gateway/backends/llama/engine"
)

// Batch is the tokens of the next decode.
type Batch interface {
	Reset()
	// Add appends a token; with output its row of logits can be read after the decode.
	Add(token int32, pos, seq int, output bool) error
	Len() int
}

// Sequences are the token sequences that a cache holds. Ranges are [p0, p1); a negative bound is open.
type Sequences interface {
	SeqCopy(src, dst, p0, p1 int) error
	// SeqRemove reports false when this kind of memory can't remove the range.
	SeqRemove(seq, p0, p1 int) (bool, error)
	PosMin(seq int) int
	PosMax(seq int) int
	Clear()
}

// Cache is one KV cache and the means to extend it. All calls come from one goroutine, Interrupt and Resume excepted.
type Cache interface {
	Batch
	Sequences
	Decode() error
	// Logits is the row of batch entry i, valid until the next Decode.
	Logits(i int) ([]float32, error)
	// SetThreads says how many threads the next decodes use.
	SetThreads(n int)
	Interrupt()
	Resume()
	Close()
}

// contextCache makes one Cache of a context and its batch.
type contextCache struct {
	*engine.Context
	*engine.Batch
}

// NewCache presents a context of the engine as a Cache. The Cache owns it.
func NewCache(c *engine.Context) Cache { return contextCache{Context: c, Batch: c.Batch()} }

// Progress counts what was done. It is written by one worker and may be read by anyone.
type Progress struct {
	decodes, tokens, peeks atomic.Uint64
	last                   atomic.Int64 // when work last moved on, in Unix nanoseconds
}

func (p *Progress) touch() { p.last.Store(time.Now().UnixNano()) }

// lane is a cache whose decodes wait for their turn, use as many threads as there are free cores, and are counted.
type lane struct {
	Cache
	turn     *Turn
	cores    *Cores // nil: the threads stay as they are
	progress *Progress
}

// decode runs the batch. When ctx ends before or during it, the error is ctx's and what the cache holds is undefined.
func (l *lane) decode(ctx context.Context) error {
	if err := l.turn.Take(ctx); err != nil {
		return err
	}
	err := l.timed()
	l.turn.Give()
	l.progress.decodes.Add(1)
	l.progress.touch()
	if errors.Is(err, engine.ErrInterrupted) && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("decode %d tokens: %w", l.Len(), err)
	}
	return nil
}

// timed decodes with the threads that cores advises, and tells it how long that took.
func (l *lane) timed() error {
	if l.cores == nil {
		return l.Decode()
	}
	threads := l.cores.Threads(l.Len())
	l.SetThreads(threads)
	begun := time.Now()
	err := l.Decode()
	if err == nil {
		l.cores.Note(threads, l.Len(), time.Since(begun))
	}
	return err
}
