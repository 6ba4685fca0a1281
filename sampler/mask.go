package sampler

import (
	"slices"
	"sort"
)

// Mask is a set of token ids, for bans and for end-of-generation tokens. A nil Mask is the empty set. It is never changed after NewMask, so
// it may be shared.
type Mask struct {
	ids []int32 // ascending, each once
}

// NewMask makes the set of ids. An id below 0 is no token, as models without one of their special tokens give it, and is left out. It keeps no
// reference to the slice.
func NewMask(ids ...int32) *Mask {
	s := slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return id < 0 })
	slices.Sort(s)
	return &Mask{ids: slices.Compact(s)}
}

// Has reports whether id is in the set.
func (m *Mask) Has(id int32) bool {
	if m == nil {
		return false
	}
	i := sort.Search(len(m.ids), func(i int) bool { return m.ids[i] >= id })
	return i < len(m.ids) && m.ids[i] == id
}

// Len is the number of ids.
func (m *Mask) Len() int {
	if m == nil {
		return 0
	}
	return len(m.ids)
}

// IDs returns the ids in ascending order, for reading only.
func (m *Mask) IDs() []int32 {
	if m == nil {
		return nil
	}
	return m.ids
}
