package sampler

import (
	"slices"

	"qr-gateway/sampler/param"
)

// Type is the JSON type of a field.
type Type = param.Type

// Field is one row of the parameter table.
type Field = param.Field

// TokenBias is added to the logit of one token.
type TokenBias = param.Bias

// The types a field can have.
const (
	TypeNumber  = param.TypeNumber
	TypeInteger = param.TypeInteger
	TypeString  = param.TypeString
	TypeBool    = param.TypeBool
	TypeObject  = param.TypeObject
)

// row ties a field to its place in a T. at returns a pointer: *string, *float64, *int, *int64, *bool, *[]TokenBias, or, for a nullable
// field, **float64, **int64, **bool. A field of any type but an object and free text may lie in a *float64: a flag as 1 and 0, a word as
// its index in the field's list.
type row[T any] struct {
	Field
	at func(*T) any
}

// rows is a table with its index. It is never changed once made, and no part of it is handed out.
type rows[T any] struct {
	all   []row[T]
	named map[string]*row[T] // by key and alias
	names []string           // those of named, in the table's order: what an unknown word may have been meant to be
}

// processOnly are the parameters of an answer that no request sets: they would hold up everybody else's.
var processOnly = [...]string{"qr_ecdf_calibration_samples"}

func newRows[T any](all []row[T], perRequest bool) rows[T] {
	t := rows[T]{all: all, named: make(map[string]*row[T], 2*len(all))}
	for i := range all {
		r := &all[i]
		r.PerRequest = perRequest && !slices.Contains(processOnly[:], r.Key)
		for _, name := range append([]string{r.Key}, r.Aliases...) {
			t.named[name] = r
			t.names = append(t.names, name)
		}
	}
	return t
}

func (t *rows[T]) fields() []Field {
	out := make([]Field, len(t.all))
	for i := range t.all {
		out[i] = t.all[i].Field
		out[i].Enum = slices.Clone(out[i].Enum)
		out[i].Aliases = slices.Clone(out[i].Aliases)
	}
	return out
}

// defaults writes what a T is that nobody set anything of.
func (t *rows[T]) defaults(to *T) {
	for i := range t.all {
		r := &t.all[i]
		r.store(to, r.DefaultValue())
	}
}

// check finds the first field of v whose value the table doesn't take.
func (t *rows[T]) check(v *T) error {
	for i := range t.all {
		r := &t.all[i]
		if value := r.load(v); !r.Fits(value) {
			return &ParamError{Key: r.Key, Value: param.Show(r.Go(value)), Allowed: r.Allowed()}
		}
	}
	return nil
}

// store writes a value of the row's type.
func (r *row[T]) store(to *T, v param.Value) {
	switch at := r.at(to).(type) {
	case *string:
		*at = v.Text
	case *float64:
		*at = r.packed(v)
	case *int:
		*at = int(v.Int)
	case *int64:
		*at = v.Int
	case *bool:
		*at = v.Bool
	case *[]TokenBias:
		*at = v.Biases
	case **float64:
		*at = orNil(v.Number, v.Null)
	case **int64:
		*at = orNil(v.Int, v.Null)
	case **bool:
		*at = orNil(v.Bool, v.Null)
	}
}

func orNil[V any](v V, null bool) *V {
	if null {
		return nil
	}
	return &v
}

// load reads the row's value.
func (r *row[T]) load(from *T) param.Value {
	switch at := r.at(from).(type) {
	case *string:
		return param.Value{Text: *at}
	case *float64:
		return r.unpacked(*at)
	case *int:
		return param.Value{Int: int64(*at)}
	case *int64:
		return param.Value{Int: *at}
	case *bool:
		return param.Value{Bool: *at}
	case *[]TokenBias:
		return param.Value{Biases: *at}
	}
	return r.loadNullable(from)
}

func (r *row[T]) loadNullable(from *T) param.Value {
	switch at := r.at(from).(type) {
	case **float64:
		if *at != nil {
			return param.Value{Number: **at}
		}
	case **int64:
		if *at != nil {
			return param.Value{Int: **at}
		}
	case **bool:
		if *at != nil {
			return param.Value{Bool: **at}
		}
	}
	return param.Value{Null: true}
}

// packed is v as a float64.
func (r *row[T]) packed(v param.Value) float64 {
	switch {
	case r.Type == TypeInteger:
		return float64(v.Int)
	case r.Type == TypeString:
		return float64(slices.Index(r.Enum, v.Text))
	case r.Type == TypeBool && v.Bool:
		return 1
	}
	return v.Number
}

// unpacked is the reverse of packed. A number that stands for no word is an empty one, which no list has.
func (r *row[T]) unpacked(x float64) param.Value {
	switch r.Type {
	case TypeInteger:
		return param.Value{Int: int64(x)}
	case TypeBool:
		return param.Value{Bool: x != 0}
	case TypeString:
		if i := int(x); i >= 0 && i < len(r.Enum) {
			return param.Value{Text: r.Enum[i]}
		}
		return param.Value{}
	case TypeNumber, TypeObject:
	}
	return param.Value{Number: x}
}
