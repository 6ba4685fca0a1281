package temper_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"qr-gateway/sampler/param"
	"qr-gateway/sampler/temper"
)

// fields are all that the strategies declare, by key.
func fields(t *testing.T) map[string]param.Field {
	t.Helper()
	all := map[string]param.Field{}
	for _, k := range temper.Kinds() {
		for _, f := range k.Fields {
			if _, twice := all[f.Key]; twice {
				t.Errorf("%s is declared twice", f.Key)
			}
			all[f.Key] = f
		}
	}
	return all
}

func TestKinds(t *testing.T) {
	var names []string
	for _, k := range temper.Kinds() {
		if k.Help == "" || k.New == nil {
			t.Errorf("incomplete: %+v", k)
		}
		names = append(names, k.Name)
		for i := range k.Fields {
			k.Fields[i].Key = "spoilt"
		}
	}
	want := []string{
		"belltemp", "coherence_gate", "dynatemp", "edt", "evdt_tt", "fixed", "gdt", "hvh_drift", "mix_temperatures", "ring_buffer_ar", "tt_exchange",
	}
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Errorf("strategies %q, want %q", names, want)
	}
	if _, spoilt := fields(t)["spoilt"]; spoilt {
		t.Error("the table can be changed")
	}
	if _, err := temper.Find("cosmic"); !errors.Is(err, temper.ErrUnknown) || !strings.Contains(err.Error(), "ring_buffer_ar") {
		t.Errorf("an unknown name: error %v", err)
	}
}

func TestFields(t *testing.T) {
	for key, f := range fields(t) {
		if !strings.HasPrefix(key, "qr_") || f.Env != strings.ToUpper(key) || f.Help == "" {
			t.Errorf("%+v", f)
		}
		if f.Type == param.TypeString {
			if !slices.Contains(f.Enum, f.Default.(string)) {
				t.Errorf("%s: default %v is none of %q", key, f.Default, f.Enum)
			}
			continue
		}
		if !inRange(f, f.Default) || math.IsInf(f.Max-f.Min, 0) || f.Max <= f.Min {
			t.Errorf("%s: default %v, range %v to %v", key, f.Default, f.Min, f.Max)
		}
	}
}

func inRange(f param.Field, value any) bool {
	v := values{"it": value}.Number("it")
	return v <= f.Max && (v > f.Min || v == f.Min && !f.MinOpen)
}

// TestPublishedFields: every parameter of the vectors is declared with the default they have, and takes every value they use.
func TestPublishedFields(t *testing.T) {
	f, all := loadVectors(t), fields(t)
	for name, def := range f.Defaults {
		if name == "fixed_temperature" {
			continue // qr_temperature, which is the request's own
		}
		field, ok := all["qr_"+name]
		if !ok {
			t.Errorf("%s is not declared", name)
		}
		if v, is := def.(float64); is && v != (values{"it": field.Default}).Number("it") || !is && def != field.Default {
			t.Errorf("%s: default %v, want %v", name, field.Default, def)
		}
	}
	if len(all) != len(f.Defaults)-1 {
		t.Errorf("%d parameters are declared, want %d", len(all), len(f.Defaults)-1)
	}
	for _, c := range slices.Concat(f.Cases, f.Defects) {
		for name, value := range c.Params {
			if field := all["qr_"+name]; field.Type != param.TypeString && name != "fixed_temperature" && !inRange(field, value) {
				t.Errorf("%s: %v is out of range", name, value)
			}
		}
	}
}
