// Package records keeps what became of the newest answers: how each one's tokens were chosen, for whoever has the answer's id.
//
// A [Store] holds documents in memory, within a number and a size; the oldest go first. It has no goroutine, and its methods are safe for
// concurrent use.
package records

import (
	"fmt"
	"slices"
	"sync"
)

// Config bounds a store.
type Config struct {
	Keep  int   // documents; 0 keeps none
	Bytes int64 // of all documents together
}

// Validate reports a value that is out of range.
func (c Config) Validate() error {
	if c.Keep < 0 || c.Bytes < 0 {
		return fmt.Errorf("check records: %d documents of %d bytes in all; neither can be negative", c.Keep, c.Bytes)
	}
	return nil
}

// Store keeps the newest documents.
type Store struct {
	cfg Config

	mu    sync.Mutex // guards all below
	byID  map[string][]byte
	order []string // of ids, oldest first
	bytes int64
}

// New makes an empty store.
func New(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Store{cfg: cfg, byID: map[string][]byte{}}, nil
}

// Put keeps doc, which is the store's from then on, under id. It reports whether there is room for it: one that is larger than all of the
// store is not kept. A second document of one id takes the place of the first.
func (s *Store) Put(id string, doc []byte) bool {
	size := int64(len(doc))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.Keep == 0 || size > s.cfg.Bytes {
		return false
	}
	if old, again := s.byID[id]; again { // only then the order is searched, which may be long
		s.bytes -= int64(len(old))
		at := slices.Index(s.order, id)
		s.order = slices.Delete(s.order, at, at+1)
	}
	s.order = append(s.order, id)
	s.byID[id] = doc
	s.bytes += size
	for len(s.order) > s.cfg.Keep || s.bytes > s.cfg.Bytes {
		s.drop(s.order[0])
	}
	return true
}

func (s *Store) drop(id string) {
	s.bytes -= int64(len(s.byID[id]))
	delete(s.byID, id)
	s.order = s.order[1:]
}

// Get returns the document of id, which the caller must not change.
func (s *Store) Get(id string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	doc, ok := s.byID[id]
	return doc, ok
}
