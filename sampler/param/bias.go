package param

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// asBiases reads an object whose keys are token ids and whose values are numbers.
func asBiases(value any, c Coding) ([]Bias, bool) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	if len(object) == 0 {
		return nil, true
	}
	out := make([]Bias, 0, len(object))
	for key, v := range object {
		id, err := strconv.ParseInt(key, 10, 32)
		bias, isNumber := asFloat(v, c)
		if err != nil || id < 0 || !isNumber {
			return nil, false
		}
		out = append(out, Bias{int32(id), bias})
	}
	slices.SortFunc(out, byToken)
	return out, ascending(out) // 7 and 07 are the same token
}

func byToken(a, b Bias) int { return cmp.Compare(a.Token, b.Token) }

func ascending(b []Bias) bool {
	for i := 1; i < len(b); i++ {
		if b[i-1].Token >= b[i].Token {
			return false
		}
	}
	return true
}

// fitsBiases holds the number of entries and the range of each.
func (f *Field) fitsBiases(b []Bias) bool {
	if len(b) > f.MaxLen || !ascending(b) {
		return false
	}
	for _, e := range b {
		if e.Token < 0 || math.IsNaN(e.Bias) || e.Bias < f.Min || e.Bias > f.Max {
			return false
		}
	}
	return true
}
