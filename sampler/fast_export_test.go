package sampler

// NewPlain returns a sampler that uses no vector instructions.
func NewPlain(nVocab int) *Sampler { return newSampler(nVocab, true) }
