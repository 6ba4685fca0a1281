package records

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func newStore(t interface{ Fatal(...any) }, keep int, bytes int64) *Store {
	s, err := New(Config{Keep: keep, Bytes: bytes})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOldestGoFirst(t *testing.T) {
	s := newStore(t, 2, 100)
	for _, id := range []string{"a", "b", "c"} {
		if !s.Put(id, []byte(id)) {
			t.Errorf("%s was not kept", id)
		}
	}
	if _, ok := s.Get("a"); ok {
		t.Error("the oldest of three is among two")
	}
	for _, id := range []string{"b", "c"} {
		if doc, ok := s.Get(id); !ok || string(doc) != id {
			t.Errorf("%s: %q, %v", id, doc, ok)
		}
	}
}

func TestLargeDocuments(t *testing.T) {
	s := newStore(t, 10, 10)
	s.Put("a", make([]byte, 6))
	if s.Put("b", make([]byte, 11)) {
		t.Error("a document larger than the store was kept")
	}
	if _, ok := s.Get("a"); !ok {
		t.Error("a document was dropped for one that has no room")
	}
	s.Put("c", make([]byte, 6))
	if _, ok := s.Get("a"); ok {
		t.Error("12 bytes are kept, 10 may be")
	}
}

func TestNothingKept(t *testing.T) {
	if s := newStore(t, 0, 10); s.Put("a", nil) {
		t.Error("a store of none kept one")
	}
	if _, err := New(Config{Keep: -1}); err == nil {
		t.Error("a negative number was taken")
	}
}

// TestLimitsHold: whatever comes in, the newest that fit are there, and no more than may be.
func TestLimitsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keep, limit := rapid.IntRange(1, 5).Draw(t, "keep"), rapid.Int64Range(1, 20).Draw(t, "bytes")
		s := newStore(t, keep, limit)
		for range rapid.IntRange(1, 40).Draw(t, "puts") {
			id := fmt.Sprint(rapid.IntRange(0, 8).Draw(t, "id"))
			doc := make([]byte, rapid.IntRange(0, 25).Draw(t, "size"))
			kept := s.Put(id, doc)
			if fits := int64(len(doc)) <= limit; kept != fits {
				t.Fatalf("%d bytes of %d: kept %v", len(doc), limit, kept)
			}
			if _, ok := s.Get(id); ok != kept && kept {
				t.Fatal("what was kept is not there")
			}
			var sum int64
			for _, d := range s.byID {
				sum += int64(len(d))
			}
			if len(s.byID) > keep || len(s.order) != len(s.byID) || sum > limit || sum != s.bytes {
				t.Fatalf("%d documents, %d in order, %d bytes, counted as %d", len(s.byID), len(s.order), sum, s.bytes)
			}
		}
	})
}
