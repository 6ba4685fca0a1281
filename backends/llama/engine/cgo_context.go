//go:build llama && cgo

package engine

/*
#include "qr.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"
)

// ThreadPool is the worker threads of decodes. One decode runs on it at a time; others wait.
type ThreadPool struct {
	mu sync.Mutex // guards h
	h  *C.qr_pool
}

// NewThreadPool starts n threads (the calling one counts as the first). poll is how long they spin before they block:
// 0 not at all, 100 longest.
func NewThreadPool(n, poll int) (*ThreadPool, error) {
	p := &ThreadPool{}
	var text errText
	buf, size := text.buf()
	code := C.qr_pool_new(clamp(n), clamp(poll), &p.h, buf, size)
	if err := codeError("start threads", code, text.String()); err != nil {
		return nil, err
	}
	return p, nil
}

// Close gives the threads up. They end when the last context that uses them is closed.
func (p *ThreadPool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	C.qr_pool_free(p.h)
	p.h = nil
}

// Context is a KV cache with its batch. One goroutine uses it, locked to its thread; Interrupt and Resume alone may be
// called from any.
type Context struct {
	h     *C.qr_context
	info  ContextInfo
	batch Batch
	rows  []*float32 // C memory: the row of each batch entry of the last decode, or nil

	mu   sync.Mutex // guards live, and so h against Close, for Interrupt and Resume
	live bool
}

// NewContext makes a context. pool may be nil: then every decode starts threads of its own.
func (m *Model) NewContext(cfg ContextConfig, pool *ThreadPool) (*Context, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if pool == nil {
		return m.newContext(cfg, nil)
	}
	pool.mu.Lock()
	defer pool.mu.Unlock()
	if pool.h == nil {
		return nil, fmt.Errorf("make context: thread pool: %w", ErrClosed)
	}
	return m.newContext(cfg, pool.h)
}

func (m *Model) newContext(cfg ContextConfig, pool *C.qr_pool) (*Context, error) {
	c := &Context{live: true}
	err := m.use(func(h *C.qr_model) error {
		var text errText
		buf, n := text.buf()
		raw := rawConfig(cfg)
		return codeError("make context", C.qr_context_new(h, &raw, pool, &c.h, buf, n), text.String())
	})
	if err != nil {
		return nil, err
	}
	c.bind()
	return c, nil
}

func rawConfig(cfg ContextConfig) C.struct_qr_context_config {
	return C.struct_qr_context_config{
		context: clamp(cfg.Context), batch: clamp(cfg.Batch), ubatch: clamp(cfg.UBatch), sequences: clamp(cfg.Sequences),
		outputs: clamp(cfg.Outputs), threads: clamp(cfg.Threads), flash_attention: flag(cfg.FlashAttention),
		kv_f32: flag(cfg.KVType == F32), unified: flag(cfg.Unified), swa_full: flag(cfg.SWAFull),
	}
}

// clamp keeps a number that does not fit from wrapping into one that looks right.
func clamp(n int) C.int32_t { return C.int32_t(max(-1<<31, min(n, 1<<31-1))) }

// bind learns what the context became and where its batch lies.
func (c *Context) bind() {
	var i C.struct_qr_context_info
	C.qr_context_describe(c.h, &i)
	c.info = ContextInfo{
		Context: int(i.context), Batch: int(i.batch), UBatch: int(i.ubatch), Sequences: int(i.sequences),
		Outputs: int(i.outputs), Vocabulary: int(i.vocabulary), Memory: memoryOf(i.memory),
	}
	var b C.struct_qr_batch
	C.qr_context_batch(c.h, &b)
	n := int(b.capacity)
	c.batch.token = unsafe.Slice((*int32)(unsafe.Pointer(b.token)), n)
	c.batch.pos = unsafe.Slice((*int32)(unsafe.Pointer(b.pos)), n)
	c.batch.seq = unsafe.Slice((*int32)(unsafe.Pointer(b.seq)), n)
	c.batch.output = unsafe.Slice((*int8)(unsafe.Pointer(b.output)), n)
	c.rows = unsafe.Slice((**float32)(unsafe.Pointer(b.rows)), n)
}

// Close frees the context; its rows and batch are gone with it. The owning goroutine calls it, once no decode runs.
func (c *Context) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.live {
		return
	}
	c.live = false
	c.batch, c.rows = Batch{}, nil
	C.qr_context_free(c.h)
	c.h = nil
}

// Info describes the context as it was made.
func (c *Context) Info() ContextInfo { return c.info }

// Batch is the context's own batch, which Decode decodes.
func (c *Context) Batch() *Batch { return &c.batch }

// Decode decodes the batch. Its errors are ErrNoCells, ErrInterrupted, ErrContextFull, ErrBadBatch, ErrStale and
// ErrCompute, each with what became of the cache in its comment. Rows of the previous Decode end here.
func (c *Context) Decode() error {
	if c.h == nil {
		return fmt.Errorf("decode: %w", ErrClosed)
	}
	if code := C.qr_decode(c.h, C.int32_t(c.batch.n)); code != C.QR_OK {
		return codeError("decode", code, C.GoString(C.qr_context_error(c.h)))
	}
	return nil
}

// Logits is the row of batch entry i of the last Decode, which must have been added with output. It is C memory, valid
// until the next Decode, Clear or Close.
func (c *Context) Logits(i int) ([]float32, error) {
	if i < 0 || i >= len(c.rows) || c.rows[i] == nil {
		return nil, fmt.Errorf("read logits: entry %d of the last decode has no row: %w", i, ErrBadArgument)
	}
	return unsafe.Slice(c.rows[i], c.info.Vocabulary), nil
}

// SeqCopy makes dst share what src holds in positions [p0, p1); negative means open. On recurrent layers the state is
// copied whole whatever the range. A split cache copies whole sequences only.
func (c *Context) SeqCopy(src, dst, p0, p1 int) error {
	if c.h == nil {
		return fmt.Errorf("copy sequence: %w", ErrClosed)
	}
	return c.seqError("copy sequence", C.qr_seq_copy(c.h, clamp(src), clamp(dst), clamp(p0), clamp(p1)))
}

// SeqRemove removes positions [p0, p1) of seq; negative means open. It reports false, with nothing changed, where the
// memory can't do that and go on: parts of recurrent states, tails whose window is gone.
func (c *Context) SeqRemove(seq, p0, p1 int) (bool, error) {
	if c.h == nil {
		return false, fmt.Errorf("remove sequence: %w", ErrClosed)
	}
	code := C.qr_seq_remove(c.h, clamp(seq), clamp(p0), clamp(p1))
	if code < 0 {
		return false, c.seqError("remove sequence", code)
	}
	return code != 0, nil
}

func (c *Context) seqError(doing string, code C.int32_t) error {
	if code == C.QR_OK {
		return nil
	}
	return codeError(doing, code, C.GoString(C.qr_context_error(c.h)))
}

// PosMin is the first position that seq holds, -1 if it is empty or unknown.
func (c *Context) PosMin(seq int) int {
	if c.h == nil {
		return -1
	}
	return int(C.qr_seq_pos_min(c.h, clamp(seq)))
}

// PosMax is the last position that seq holds, -1 if it is empty or unknown.
func (c *Context) PosMax(seq int) int {
	if c.h == nil {
		return -1
	}
	return int(C.qr_seq_pos_max(c.h, clamp(seq)))
}

// StateSize is the number of bytes seq's state would take if it were saved.
func (c *Context) StateSize(seq int) int {
	if c.h == nil {
		return 0
	}
	return int(C.qr_state_size(c.h, clamp(seq)))
}

// Clear empties every sequence.
func (c *Context) Clear() {
	if c.h != nil {
		C.qr_clear(c.h)
	}
}

// SetThreads says how many threads the next decodes use: from 1 to ContextConfig.Threads. Without flash attention the
// logits do not depend on it.
func (c *Context) SetThreads(n int) {
	if c.h != nil {
		C.qr_set_threads(c.h, clamp(n))
	}
}

// Interrupt makes the running Decode and all later ones return ErrInterrupted, until Resume. On a CPU that takes
// milliseconds; a GPU finishes its batch first.
func (c *Context) Interrupt() { c.interrupt(1) }

// Resume takes Interrupt back.
func (c *Context) Resume() { c.interrupt(0) }

func (c *Context) interrupt(on C.int32_t) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live {
		C.qr_interrupt(c.h, on)
	}
}
