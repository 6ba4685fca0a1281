//go:build !llama || !cgo

package engine

import "log/slog"

// Init reports that there is no engine in this build.
func Init(slog.Level) error { return ErrNotBuilt }

// Version is empty in this build.
func Version() string { return "" }

// SystemInfo is empty in this build.
func SystemInfo() string { return "" }

// Model can't be had in this build.
type Model struct{}

// LoadModel returns ErrNotBuilt.
func LoadModel(ModelConfig) (*Model, error) { return nil, ErrNotBuilt }

// Close does nothing.
func (m *Model) Close() {}

// Info is empty.
func (m *Model) Info() ModelInfo { return ModelInfo{} }

// Vocab is empty.
func (m *Model) Vocab() *Vocab { return NewVocab(nil, nil) }

// Tokenize returns ErrNotBuilt.
func (m *Model) Tokenize(string, bool, bool) ([]int32, error) { return nil, ErrNotBuilt }

// ApplyTemplate returns ErrNotBuilt.
func (m *Model) ApplyTemplate(ChatInput) (ChatPrompt, error) { return ChatPrompt{}, ErrNotBuilt }

// ParseChat returns ErrNotBuilt.
func (m *Model) ParseChat([]byte, string, bool) (ChatMessage, error) {
	return ChatMessage{}, ErrNotBuilt
}

// NewContext returns ErrNotBuilt.
func (m *Model) NewContext(ContextConfig, *ThreadPool) (*Context, error) { return nil, ErrNotBuilt }

// ThreadPool can't be had in this build.
type ThreadPool struct{}

// NewThreadPool returns ErrNotBuilt.
func NewThreadPool(int, int) (*ThreadPool, error) { return nil, ErrNotBuilt }

// Close does nothing.
func (p *ThreadPool) Close() {}

// Context can't be had in this build.
type Context struct{}

// Close does nothing.
func (c *Context) Close() {}

// Info is empty.
func (c *Context) Info() ContextInfo { return ContextInfo{} }

// Batch is a batch that is always full.
func (c *Context) Batch() *Batch { return &Batch{} }

// Decode returns ErrNotBuilt.
func (c *Context) Decode() error { return ErrNotBuilt }

// Logits returns ErrNotBuilt.
func (c *Context) Logits(int) ([]float32, error) { return nil, ErrNotBuilt }

// SeqCopy returns ErrNotBuilt.
func (c *Context) SeqCopy(int, int, int, int) error { return ErrNotBuilt }

// SeqRemove returns ErrNotBuilt.
func (c *Context) SeqRemove(int, int, int) (bool, error) { return false, ErrNotBuilt }

// PosMin is -1.
func (c *Context) PosMin(int) int { return -1 }

// PosMax is -1.
func (c *Context) PosMax(int) int { return -1 }

// StateSize is 0.
func (c *Context) StateSize(int) int { return 0 }

// Clear does nothing.
func (c *Context) Clear() {}

// SetThreads does nothing.
func (c *Context) SetThreads(int) {}

// Interrupt does nothing.
func (c *Context) Interrupt() {}

// Resume does nothing.
func (c *Context) Resume() {}
