package main

import (
	"encoding/csv"
	"fmt"
	"strings"

	"qr-gateway/entropy/catalog"
)

// parseSource reads a source from a flag: TYPE,key=value,... where name, policy and fallback are those of the source and every other key is
// an option of the type. A value with a comma in it stands in double quotes, as in CSV, around the whole key=value. The name is the type
// unless it is given.
func parseSource(text string) (catalog.Spec, error) {
	r := csv.NewReader(strings.NewReader(text))
	r.TrimLeadingSpace = true
	fields, err := r.Read()
	if err != nil {
		return catalog.Spec{}, fmt.Errorf("read entropy source %q: %w; it takes TYPE and then any number of key=value, with commas between", text, err)
	}
	spec := catalog.Spec{Type: fields[0], Name: fields[0], Options: map[string]any{}}
	for _, f := range fields[1:] {
		key, value, ok := strings.Cut(f, "=")
		switch {
		case !ok || key == "":
			return catalog.Spec{}, fmt.Errorf("read entropy source %q: %q is not key=value", text, f)
		case key == "name":
			spec.Name = value
		case key == "policy":
			spec.Policy = value
		case key == "fallback":
			spec.Fallback = value
		default:
			if _, twice := spec.Options[key]; twice {
				return catalog.Spec{}, fmt.Errorf("read entropy source %q: %s is given twice", text, key)
			}
			spec.Options[key] = value
		}
	}
	return spec, nil
}

// parseSources reads all sources of a repeated flag.
func parseSources(texts []string) ([]catalog.Spec, error) {
	specs := make([]catalog.Spec, len(texts))
	for i, text := range texts {
		var err error
		if specs[i], err = parseSource(text); err != nil {
			return nil, err
		}
	}
	return specs, nil
}
