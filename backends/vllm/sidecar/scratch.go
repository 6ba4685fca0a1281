package sidecar

import (
	"context"
	"sync"

	"qr-gateway/sampler"
)

// scratch is the memory that whole rows are decided in, some 2 MB for 150,000 tokens: as many pieces of it as rows are decided at once, not as
// there are requests. The zero value is ready.
type scratch struct {
	mu    sync.Mutex // guards pools
	pools map[int]*sync.Pool
}

func (s *scratch) pool(vocab int) *sync.Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pools[vocab]
	if p == nil {
		if s.pools == nil {
			s.pools = map[int]*sync.Pool{}
		}
		p = &sync.Pool{New: func() any { return sampler.New(vocab) }}
		s.pools[vocab] = p
	}
	return p
}

// next decides a whole row of a request in such memory.
func (s *session) next(ctx context.Context, r *request, whole []float32) (sampler.Draw, error) {
	own := s.scratch.Get().(*sampler.Sampler)
	r.stream.Use(own)
	defer func() {
		r.stream.Use(nil)
		s.scratch.Put(own)
	}()
	return r.stream.Next(ctx, whole, nil, r.tap)
}
