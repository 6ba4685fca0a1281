package text

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// decode runs pieces through a Decoder, checking after each that only whole UTF-8 came out.
func decode(t interface{ Fatalf(string, ...any) }, pieces [][]byte) string {
	var d Decoder
	var out []byte
	for _, p := range pieces {
		out = d.Append(out, p)
		if !utf8.Valid(out) {
			t.Fatalf("after piece %q: %q is not whole UTF-8", p, out)
		}
	}
	return string(d.Flush(out))
}

// cut splits s at the given places, taken modulo what is left.
func cut(s []byte, at []byte) [][]byte {
	var pieces [][]byte
	for _, n := range at {
		k := int(n) % (len(s) + 1)
		pieces, s = append(pieces, s[:k]), s[k:]
	}
	return append(pieces, s)
}

func TestDecoderHoldsBackSplitRunes(t *testing.T) {
	euro := []byte("€")
	var d Decoder
	if got := d.Append(nil, euro[:2]); len(got) != 0 {
		t.Errorf("half a rune came out: %q", got)
	}
	if got := string(d.Append(nil, euro[2:])); got != "€" {
		t.Errorf("got %q, want the whole rune", got)
	}
	for name, c := range map[string]struct{ in, want string }{
		"cut off at the end": {"a\xe2\x82", "a\ufffd\ufffd"},
		"broken in between":  {"\xe2\x82x", "\ufffd\ufffdx"},
		"never a rune":       {"\xff\xfe", "\ufffd\ufffd"},
		"surrogate":          {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
		"four bytes":         {"😀é", "😀é"},
	} {
		if got := decode(t, [][]byte{[]byte(c.in)}); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add([]byte("naïve 😀 \xff\xe2\x82"), []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, s, at []byte) {
		want := string([]rune(string(s)))
		if got := decode(t, cut(s, at)); got != want {
			t.Fatalf("cut at %v: got %q, want %q", at, got, want)
		}
	})
}

// scan runs pieces through Stops as a generation does.
func scan(stops []string, include bool, pieces [][]byte) (string, bool) {
	s := NewStops(stops, include)
	var out []byte
	for _, p := range pieces {
		var found bool
		if out, found = s.Append(out, p); found {
			return string(s.Flush(out)), true
		}
	}
	return string(s.Flush(out)), false
}

// reference finds the stop that is complete first, by looking at every beginning of text.
func reference(stops []string, include bool, text string) (string, bool) {
	for end := 1; end <= len(text); end++ {
		best := ""
		for _, stop := range stops {
			if len(stop) > len(best) && strings.HasSuffix(text[:end], stop) {
				best = stop
			}
		}
		if best == "" {
			continue
		}
		if include {
			return text[:end], true
		}
		return text[:end-len(best)], true
	}
	return text, false
}

func TestStops(t *testing.T) {
	for name, c := range map[string]struct {
		stops   []string
		include bool
		in      string // pieces between bars
		want    string
		found   bool
	}{
		"none":                    {nil, false, "abc|def", "abcdef", false},
		"split over tokens":       {[]string{"END"}, false, "so E|N|D more", "so ", true},
		"included":                {[]string{"END"}, true, "so E|N|D more", "so END", true},
		"false start":             {[]string{"END"}, false, "E|EN|EN|Q", "EENENQ", false},
		"first complete wins":     {[]string{"abcd", "bc"}, false, "xa|bcd", "xa", true},
		"longest at the same end": {[]string{"bc", "abc"}, false, "xa|bc", "x", true},
		"prefix of another":       {[]string{"ab", "abc"}, false, "xabc", "x", true},
		"inside a rune":           {[]string{"€"}, false, "1\xe2|\x82\xac 2", "1", true},
		"repeating pattern":       {[]string{"aab"}, false, "a|a|a|b", "a", true},
		"held to the end":         {[]string{"stop"}, false, "sto", "sto", false},
		"empty stop ignored":      {[]string{""}, false, "abc", "abc", false},
	} {
		var pieces [][]byte
		for p := range strings.SplitSeq(c.in, "|") {
			pieces = append(pieces, []byte(p))
		}
		got, found := scan(c.stops, c.include, pieces)
		if got != c.want || found != c.found {
			t.Errorf("%s: got %q, %v; want %q, %v", name, got, found, c.want, c.found)
		}
	}
}

func TestStopsHoldBackOnlyWhatMayMatch(t *testing.T) {
	s := NewStops([]string{"<end>"}, false)
	out, _ := s.Append(nil, []byte("text <en"))
	if string(out) != "text " {
		t.Errorf("let out %q, want %q", out, "text ")
	}
	if out, _ = s.Append(out[:0], []byte("x")); string(out) != "<enx" {
		t.Errorf("let out %q, want %q", out, "<enx")
	}
}

func FuzzStops(f *testing.F) {
	f.Add("the end. The END", "END", "end", false, []byte{3, 1})
	f.Add("aaabaab", "aab", "ab", true, []byte{1, 1, 1})
	f.Fuzz(func(t *testing.T, s, a, b string, include bool, at []byte) {
		stops := []string{a, b}
		want, found := reference(stops, include, s)
		got, gotFound := scan(stops, include, cut([]byte(s), at))
		if got != want || gotFound != found {
			t.Fatalf("stops %q, cut at %v: got %q, %v; want %q, %v", stops, at, got, gotFound, want, found)
		}
	})
}

func TestStopsLaw(t *testing.T) {
	word := rapid.StringOfN(rapid.RuneFrom([]rune("ab€")), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOfN(rapid.RuneFrom([]rune("ab€")), 0, 40, -1).Draw(t, "text")
		stops := rapid.SliceOfN(word, 0, 4).Draw(t, "stops")
		at := rapid.SliceOf(rapid.Byte()).Draw(t, "cuts")
		include := rapid.Bool().Draw(t, "include")
		want, found := reference(stops, include, s)
		if got, gotFound := scan(stops, include, cut([]byte(s), at)); got != want || gotFound != found {
			t.Fatalf("got %q, %v; want %q, %v", got, gotFound, want, found)
		}
	})
}

func TestNoAllocationPerToken(t *testing.T) {
	s, d := NewStops([]string{"never", "nothing"}, false), Decoder{}
	buf, out, piece := make([]byte, 0, 64), make([]byte, 0, 64), []byte(" né")
	if n := testing.AllocsPerRun(100, func() {
		buf, _ = s.Append(buf[:0], piece)
		out = d.Append(out[:0], buf)
	}); n != 0 {
		t.Errorf("%v allocations per token, want 0", n)
	}
}
