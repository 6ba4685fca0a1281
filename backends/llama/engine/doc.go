// Package engine is the only package that calls C: a thin, safe surface over llama.cpp for one process.
//
// A [Model] holds the weights, the vocabulary and the chat template; any number of goroutines may use it. A [Context]
// holds one KV cache and is used by one goroutine, which should be locked to its thread with [runtime.LockOSThread]
// for as long as it decodes; only [Context.Interrupt] and [Context.Resume] may be called from elsewhere. A
// [ThreadPool] runs one decode at a time and may be shared by contexts that take turns. Contexts keep the weights and
// the pool they were made with alive, so the three may be closed in any order.
//
// What llama.cpp answers with an assertion, and so with the end of the process, is refused here with an error: batches
// and outputs over their limits, unknown ids, partial copies in a split cache. What it answers with silently wrong
// numbers is refused too: two tokens of one sequence at one position, a window that is gone, a recurrent state after
// an interrupted decode. See design.md.
//
// The package is empty without the build tag "llama" and cgo: then every call returns [ErrNotBuilt], so that the rest of
// the tree builds and tests without a C++ compiler. llama.cpp logs to stderr, one JSON line per message.
package engine
