package nesting_test

import (
	"testing"

	"qr-gateway/backends/nesting"
)

func TestDeeper(t *testing.T) {
	for data, want := range map[string]int{
		"":               -1,
		`7`:              -1,
		`[[]]`:           -1,
		`[[],[],{}]`:     -1,
		`[[[`:            2,
		`{"a":{"b":[]}}`: 10,
		`["[[[[", []]`:   -1,
		`["\"[[[", []]`:  -1,
		`["\\", [[]]]`:   8,
		`]]][[[[[[`:      8,
	} {
		if got := nesting.Deeper([]byte(data), 2); got != want {
			t.Errorf("%s: %d, want %d", data, got, want)
		}
	}
}
