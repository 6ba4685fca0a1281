package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"strings"
)

// same compares two JSON values; numbers by what they are worth, so that 1 is 1.0 and no digit of a long one is lost.
func same(a, b json.RawMessage) bool {
	x, y := digest(a), digest(b)
	return x == y && x != ""
}

// digest is the same short text for the same value; empty for what is no JSON. A card notes it of what we wrote there, which is shorter than
// the value.
func digest(raw json.RawMessage) string {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return ""
	}
	sum := sha256.Sum256(encoded(exact(v)))
	return hex.EncodeToString(sum[:8])
}

// exact is v with numbers in one form.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		// A number like 1e999999999 would take all memory as a fraction; such a one is compared as it is written.
		if r, ok := new(big.Rat).SetString(v.String()); ok && len(v) < 64 && !strings.ContainsAny(v.String(), "eE") {
			return []any{"number", r.RatString()}
		}
		return []any{"number", v.String()}
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
		return []any{"list", v}
	case map[string]any:
		for k := range v {
			v[k] = exact(v[k])
		}
	}
	return v
}
