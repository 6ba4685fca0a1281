package param

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// AppendJSON adds v, a value of the field's type, to b.
func (f *Field) AppendJSON(b []byte, v Value) ([]byte, error) {
	if v.Null {
		return append(b, "null"...), nil
	}
	switch f.Type {
	case TypeNumber:
		return appendNumber(b, f.Key, v.Number)
	case TypeInteger:
		return strconv.AppendInt(b, v.Int, 10), nil
	case TypeBool:
		return strconv.AppendBool(b, v.Bool), nil
	case TypeObject:
		return appendBiases(b, f.Key, v.Biases)
	case TypeString:
	}
	text, err := json.Marshal(v.Text)
	return append(b, text...), err
}

func appendNumber(b []byte, key string, x float64) ([]byte, error) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil, fmt.Errorf("encode %s: %v is no JSON number", key, x)
	}
	return strconv.AppendFloat(b, x, 'g', -1, 64), nil
}

func appendBiases(b []byte, key string, biases []Bias) ([]byte, error) {
	b = append(b, '{')
	for i, e := range biases {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = strconv.AppendInt(b, int64(e.Token), 10)
		b = append(b, '"', ':')
		var err error
		if b, err = appendNumber(b, key, e.Bias); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// Go is v as encoding/json would decode it into an any; an integer is an int64.
func (f *Field) Go(v Value) any {
	if v.Null {
		return nil
	}
	switch f.Type {
	case TypeNumber:
		return v.Number
	case TypeInteger:
		return v.Int
	case TypeBool:
		return v.Bool
	case TypeString:
		return v.Text
	case TypeObject:
	}
	out := make(map[string]any, len(v.Biases))
	for _, e := range v.Biases {
		out[strconv.Itoa(int(e.Token))] = e.Bias
	}
	return out
}
