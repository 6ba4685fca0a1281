package temper_test

import (
	"maps"

	"qr-gateway/sampler/temper"
)

// values is [param.Values] over a map.
type values map[string]any

// Number implements [param.Values].
func (v values) Number(key string) float64 {
	switch n := v[key].(type) {
	case float64:
		return n
	case int:
		return float64(n)
	}
	return 0
}

// Text implements [param.Values].
func (v values) Text(key string) string {
	s, _ := v[key].(string)
	return s
}

// defaults are those of every strategy, with some of them changed.
func defaults(change values) values {
	v := values{"qr_temperature": 1.0}
	for _, k := range temper.Kinds() {
		for _, f := range k.Fields {
			v[f.Key] = f.Default
		}
	}
	maps.Copy(v, change)
	return v
}
