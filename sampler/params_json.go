package sampler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"qr-gateway/sampler/param"
)

// MarshalJSON writes one flat object with every field by its key, in the order of the table.
func (p Params) MarshalJSON() ([]byte, error) {
	return table.appendJSON(make([]byte, 0, 4096), &p)
}

func (t *rows[T]) appendJSON(b []byte, v *T) ([]byte, error) {
	b = append(b, '{')
	for i := range t.all {
		r := &t.all[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), r.Key...), '"', ':')
		var err error
		if b, err = r.AppendJSON(b, r.load(v)); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// UnmarshalJSON reads what MarshalJSON wrote. Fields that are absent stay as they are. Unknown fields and wrong types are errors; ranges are
// for [Params.Validate].
func (p *Params) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil {
		return fmt.Errorf("decode parameters: %w", err)
	}
	q := *p
	for key, value := range object {
		r, ok := table.named[key]
		if !ok || r.Key != key {
			return unknown(key)
		}
		v, ok := r.Read(value, param.Strict)
		if !ok {
			return &ParamError{Key: key, Value: param.Show(value), Allowed: r.Allowed()}
		}
		r.store(&q, v)
	}
	*p = q
	return nil
}

// ParseParams reads what encoding/json wrote of a Params. Absent fields have their defaults; unknown fields, values out of range and
// anything after the object are errors.
func ParseParams(data []byte) (Params, error) {
	p := Defaults()
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&p); err != nil {
		return Params{}, fmt.Errorf("parse parameters: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Params{}, errors.New("parse parameters: text follows the object")
	}
	if err := p.Validate(); err != nil {
		return Params{}, fmt.Errorf("parse parameters: %w", err)
	}
	return p, nil
}

// Setting is one parameter with its value as encoding/json would decode it; an integer is an int64.
type Setting struct {
	Key   string
	Value any
}

// Differences are the parameters in which p is not as from, in the order of the table.
func (p *Params) Differences(from *Params) []Setting {
	return p.settings(func(r *row[Params]) bool { return !reflect.DeepEqual(r.Go(r.load(p)), r.Go(r.load(from))) })
}

// Settings are the parameters called keys, in the order of the table. Other words are ignored.
func (p *Params) Settings(keys []string) []Setting {
	return p.settings(func(r *row[Params]) bool { return slices.Contains(keys, r.Key) })
}

func (p *Params) settings(of func(*row[Params]) bool) []Setting {
	var out []Setting
	for i := range table.all {
		if r := &table.all[i]; of(r) {
			out = append(out, Setting{r.Key, r.Go(r.load(p))})
		}
	}
	return out
}
