package param

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Fits says whether the field takes v: its range, its words, its length.
func (f *Field) Fits(v Value) bool {
	if v.Null {
		return f.Nullable
	}
	switch f.Type {
	case TypeNumber:
		return f.fitsNumber(v.Number)
	case TypeInteger:
		return f.fitsNumber(float64(v.Int))
	case TypeString:
		return f.fitsText(v.Text)
	case TypeBool:
		return true
	case TypeObject:
		return f.fitsBiases(v.Biases)
	}
	return false
}

func (f *Field) fitsNumber(x float64) bool {
	if f.OrZero && x == 0 {
		return true
	}
	return x >= f.Min && x <= f.Max && (!f.MinOpen || x > f.Min)
}

func (f *Field) fitsText(s string) bool {
	if len(f.Enum) > 0 {
		return slices.Contains(f.Enum, s)
	}
	return len(s) <= f.MaxLen && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// Allowed says in words what the field takes.
func (f *Field) Allowed() string {
	text := ""
	switch f.Type {
	case TypeString:
		text = f.allowedText()
	case TypeBool:
		text = "true or false"
	case TypeInteger:
		text = f.allowedNumber("a whole number")
	case TypeNumber:
		text = f.allowedNumber("a number")
	case TypeObject:
		text = "an object of up to " + strconv.Itoa(f.MaxLen) + " token ids, each with a number from " + decimal(f.Min) + " to " + decimal(f.Max)
	}
	if f.Nullable {
		text += ", or null"
	}
	return text
}

func (f *Field) allowedText() string {
	if len(f.Enum) > 0 {
		return "one of " + strings.Join(f.Enum, ", ")
	}
	return "text of at most " + strconv.Itoa(f.MaxLen) + " bytes without control characters"
}

func (f *Field) allowedNumber(kind string) string {
	if f.OrZero {
		kind = "0 (off) or " + kind
	}
	if f.MinOpen {
		return kind + " above " + decimal(f.Min) + ", up to " + decimal(f.Max)
	}
	return kind + " from " + decimal(f.Min) + " to " + decimal(f.Max)
}

// decimal writes a limit as people do.
func decimal(x float64) string {
	switch {
	case x == math.MinInt64:
		return "-2^63"
	case x == math.MaxInt64:
		return "2^63-1"
	case x != 0 && math.Abs(x) < 1e-4:
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}
