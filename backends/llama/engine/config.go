package engine

import "fmt"

// ModelConfig says what to load and where to put it.
type ModelConfig struct {
	Path         string // GGUF file; the first one of a split model
	GPULayers    int    // negative = all; ignored by a CPU build
	MMap         bool   // map the file instead of reading it
	CheckTensors bool   // look for invalid values in all weights; slow
}

// Memory is how a model keeps what it has read, which decides what can be undone.
type Memory string

// The four kinds of memory.
const (
	MemoryAttention     Memory = "attention"      // a KV cache: any tail can be removed
	MemorySlidingWindow Memory = "sliding-window" // some layers see only the last Window tokens
	MemoryHybrid        Memory = "hybrid"         // attention and recurrent layers: whole sequences only
	MemoryRecurrent     Memory = "recurrent"      // a state of fixed size: whole sequences only
)

// ModelInfo describes a loaded model.
type ModelInfo struct {
	Description    string
	Architecture   string
	Memory         Memory
	Window         int // tokens; 0 = none
	Vocabulary     int // tokens
	TrainedContext int // tokens
	Bytes          uint64
	Parameters     uint64
	HasTokenizer   bool
	HasTemplate    bool
	GPU            bool // this build can put layers on a GPU of this machine
}

// KVType is the number format of the KV cache.
type KVType int

// F16 halves the cache and is the default; F32 keeps float noise under 0.004 and is for tests of correctness.
const (
	F16 KVType = iota
	F32
)

// ContextConfig sizes a context.
type ContextConfig struct {
	Context        int    // tokens, all sequences together; at least 256
	Batch          int    // tokens in one Decode, at most Context
	UBatch         int    // tokens in one computation, at most Batch
	Sequences      int    // ids 0..Sequences-1, at most 256
	Outputs        int    // rows of logits in one Decode: from Sequences to Batch
	Threads        int    // threads of a decode, at most the pool's
	FlashAttention bool   // slower for small batches on a CPU
	KVType         KVType //
	Unified        bool   // one cache for all sequences; else it is divided, and only whole sequences can be copied
	SWAFull        bool   // keep all cells of sliding-window layers; forks need it
}

// MaxSequences is llama.cpp's limit of sequences in a context.
const MaxSequences = 256

// Validate reports the first value out of range.
func (c ContextConfig) Validate() error {
	checks := []struct {
		name          string
		value, lo, hi int
	}{
		{"context", c.Context, 256, 1 << 30},
		{"sequences", c.Sequences, 1, MaxSequences},
		{"batch", c.Batch, c.Sequences, c.Context},
		{"ubatch", c.UBatch, 1, c.Batch},
		{"outputs", c.Outputs, c.Sequences, c.Batch},
		{"threads", c.Threads, 1, 512},
	}
	for _, k := range checks {
		if k.value < k.lo || k.value > k.hi {
			return fmt.Errorf("context config: %s is %d, must be from %d to %d: %w", k.name, k.value, k.lo, k.hi, ErrBadArgument)
		}
	}
	if c.KVType != F16 && c.KVType != F32 {
		return fmt.Errorf("context config: unknown KV type %d: %w", c.KVType, ErrBadArgument)
	}
	return nil
}

// ContextInfo is a context as it was made, which may differ from what was asked.
type ContextInfo struct {
	Context    int // tokens that one sequence can hold
	Batch      int // tokens
	UBatch     int // tokens
	Sequences  int
	Outputs    int
	Vocabulary int // length of a row of logits
	Memory     Memory
}
