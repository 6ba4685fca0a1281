package sampler

import (
	"encoding/json"
	"math"
	"strconv"
)

// maxExact is the largest integer up to which every integer is a float64.
const maxExact = 1 << 53

// asFloat reads a finite number.
func asFloat(value any) (float64, bool) {
	var f float64
	switch v := value.(type) {
	case float64:
		f = v
	case int:
		f = float64(v)
	case int64:
		f = float64(v)
	case json.Number:
		var err error
		if f, err = strconv.ParseFloat(string(v), 64); err != nil {
			return 0, false
		}
	default:
		return 0, false
	}
	return f, !math.IsNaN(f) && !math.IsInf(f, 0)
}

// asInt reads a whole number; 3.0 and 1e3 are whole. A float beyond 2^53 is refused: it may not be the number that was meant.
func asInt(value any) (int64, bool) {
	switch v := value.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case json.Number:
		if i, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return i, true
		}
	}
	f, ok := asFloat(value)
	if !ok || f != math.Trunc(f) || math.Abs(f) > maxExact {
		return 0, false
	}
	return int64(f), true
}
