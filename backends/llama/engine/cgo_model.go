//go:build llama && cgo

package engine

/*
#include "qr.h"
*/
import "C"

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"unsafe"
)

// Model is loaded weights with their vocabulary and chat template. It is safe for concurrent use.
type Model struct {
	mu    sync.RWMutex // guards h: calls hold it shared, Close alone
	h     *C.qr_model
	info  ModelInfo
	vocab *Vocab
}

// LoadModel reads a GGUF file. It returns a *ModelError that names the file and what is wrong with it.
func LoadModel(cfg ModelConfig) (*Model, error) {
	if err := checkFile(cfg.Path); err != nil {
		return nil, err
	}
	h, err := loadHandle(cfg)
	if err != nil {
		return nil, err
	}
	m := &Model{h: h}
	m.info = describe(h)
	if m.vocab, err = m.readVocab(); err != nil {
		m.Close()
		return nil, &ModelError{Path: cfg.Path, Reason: err.Error(), Err: err}
	}
	return m, nil
}

func loadHandle(cfg ModelConfig) (h *C.qr_model, err error) {
	withCString(cfg.Path, func(path *C.char) {
		c := C.struct_qr_model_config{
			path: path, gpu_layers: C.int32_t(cfg.GPULayers), mmap: flag(cfg.MMap), check_tensors: flag(cfg.CheckTensors),
		}
		var text errText
		buf, n := text.buf()
		if C.qr_model_load(&c, &h, buf, n) != C.QR_OK {
			err = loadError(cfg.Path, text.String())
		}
	})
	return h, err
}

// loadError recognises what a download cut short looks like to llama.cpp.
func loadError(path, reason string) error {
	e := &ModelError{Path: path, Reason: reason}
	for _, sign := range []string{"not within the file bounds", "failed to read", "corrupted or incomplete"} {
		if strings.Contains(reason, sign) {
			e.Reason, e.Hint = "truncated or damaged: "+reason, "fetch it again"
			break
		}
	}
	return e
}

func describe(h *C.qr_model) ModelInfo {
	var c C.struct_qr_model_info
	C.qr_model_describe(h, &c)
	return ModelInfo{
		Description: C.GoString(&c.description[0]), Architecture: C.GoString(&c.architecture[0]),
		Memory: memoryOf(c.memory), Window: int(c.window), Vocabulary: int(c.vocabulary), TrainedContext: int(c.context),
		Bytes: uint64(c.bytes), Parameters: uint64(c.parameters),
		HasTokenizer: c.has_tokenizer != 0, HasTemplate: c.has_template != 0, GPU: c.gpu != 0,
	}
}

func memoryOf(kind C.int32_t) Memory {
	return [...]Memory{MemoryAttention, MemorySlidingWindow, MemoryHybrid, MemoryRecurrent}[kind]
}

// Close gives the weights up. They are freed when the last context that uses them is closed.
func (m *Model) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	C.qr_model_free(m.h)
	m.h = nil
}

// Info describes the model.
func (m *Model) Info() ModelInfo { return m.info }

// Vocab is the model's vocabulary; it outlives the model.
func (m *Model) Vocab() *Vocab { return m.vocab }

// use runs f with the handle, which stays valid until f returns.
func (m *Model) use(f func(*C.qr_model) error) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.h == nil {
		return fmt.Errorf("use model: %w", ErrClosed)
	}
	return f(m.h)
}

// Tokenize turns text into ids. addSpecial puts BOS and its like where the model wants them; parseSpecial reads the
// spelling of control tokens in text as those tokens. It takes about a microsecond per byte and can't be stopped:
// refuse what is too long by Vocab.MinTokens first.
func (m *Model) Tokenize(text string, addSpecial, parseSpecial bool) ([]int32, error) {
	if !m.info.HasTokenizer {
		return nil, fmt.Errorf("tokenize: %w", ErrNoTokenizer)
	}
	ids := make([]int32, len(text)/2+16)
	n, err := m.tokenize(text, addSpecial, parseSpecial, ids)
	if err == nil && n > len(ids) {
		ids = make([]int32, n)
		n, err = m.tokenize(text, addSpecial, parseSpecial, ids)
	}
	if err != nil {
		return nil, err
	}
	return ids[:n], nil
}

func (m *Model) tokenize(text string, addSpecial, parseSpecial bool, ids []int32) (int, error) {
	var got C.size_t
	err := m.use(func(h *C.qr_model) error {
		var e errText
		buf, n := e.buf()
		p, length := bytesOf(text)
		out := (*C.int32_t)(unsafe.Pointer(&ids[0]))
		code := C.qr_tokenize(h, p, length, flag(addSpecial), flag(parseSpecial), out, C.size_t(len(ids)), &got, buf, n)
		if code == C.QR_BAD_ARGUMENT {
			return fmt.Errorf("tokenize: %w: %s", ErrBadInput, &e)
		}
		return codeError("tokenize", code, e.String())
	})
	return int(got), err
}

func (m *Model) readVocab() (*Vocab, error) {
	n := m.info.Vocabulary
	v := &Vocab{text: make([]byte, 16*n+1), ends: make([]uint32, n), flags: make([]TokenFlags, n), BOS: -1}
	if n == 0 {
		return v, nil
	}
	size, err := m.copyVocab(v)
	if err == nil && size > len(v.text) {
		v.text = make([]byte, size)
		size, err = m.copyVocab(v)
	}
	if err != nil {
		return nil, err
	}
	v.text = bytes.Clone(v.text[:size])
	v.measure()
	return v, m.readTokenizer(v)
}

func (m *Model) copyVocab(v *Vocab) (int, error) {
	var size C.size_t
	var e errText
	buf, n := e.buf()
	code := C.qr_vocab(m.h, (*C.char)(unsafe.Pointer(&v.text[0])), C.size_t(len(v.text)),
		(*C.uint32_t)(unsafe.Pointer(&v.ends[0])), (*C.uint8_t)(unsafe.Pointer(&v.flags[0])), &size, buf, n)
	return int(size), codeError("read vocabulary", code, e.String())
}

// readTokenizer asks the tokenizer itself how it treats the beginning of a text; the file need not say.
func (m *Model) readTokenizer(v *Vocab) error {
	if !m.info.HasTokenizer {
		return nil
	}
	var c C.struct_qr_model_info
	C.qr_model_describe(m.h, &c)
	v.AddBOS, v.BOS = c.add_bos != 0, int32(c.bos)
	ids, err := m.Tokenize("a", false, false)
	if err != nil {
		return err
	}
	v.LeadingSpace = bytes.HasPrefix(v.Detokenize(ids, true), []byte(" "))
	return nil
}
