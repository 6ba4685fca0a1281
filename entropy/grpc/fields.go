package grpc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Fields says what the fields of a server's messages mean, by number: 0 is as the schema has it, -1 a field that the server does not have.
// Nothing is guessed: the same number is an echo in one protocol and a time in another.
type Fields struct {
	Count    int `mapstructure:"field_count"`    // of the request: what is asked for
	Sequence int `mapstructure:"field_sequence"` // of the request: our number, to be sent back
	Data     int `mapstructure:"field_data"`     // of the reply: the bytes
	Echo     int `mapstructure:"field_echo"`     // of the reply: our number
	Time     int `mapstructure:"field_time"`     // of the reply: when the bytes were made
	Device   int `mapstructure:"field_device"`   // of the reply: what made them

	CountUnit string `mapstructure:"count_unit"` // bytes or bits
	EchoType  string `mapstructure:"echo_type"`  // varint or fixed64
	TimeUnit  string `mapstructure:"time_unit"`  // ns, us, ms or s, since 1970
	TimeType  string `mapstructure:"time_type"`  // varint, fixed64 or double
}

// schema is a protocol that is known by name.
type schema struct {
	name, method, stream, echo string
	fields                     Fields
}

// schemas are the protocols that are known by name. A new one is a line here.
var schemas = []schema{
	{
		"qr_entropy", "/qr_entropy.EntropyService/GetEntropy", "/qr_entropy.EntropyService/StreamEntropy", EchoSequence,
		Fields{Count: 1, Sequence: 2, Data: 1, Echo: 2, Time: 3, Device: 4, CountUnit: "bytes", EchoType: "varint", TimeUnit: "ns", TimeType: "varint"},
	},
	{
		"qrng", "/qrng.QuantumRNG/GetRandomBytes", "", EchoNone,
		Fields{Count: 1, Data: 1, Time: 2, Device: 3, CountUnit: "bytes", EchoType: "varint", TimeUnit: "us", TimeType: "varint"},
	},
}

// schemaBy is the protocol that has the method, or the published one.
func schemaBy(method string) string {
	for _, s := range schemas {
		if s.method == method {
			return s.name
		}
	}
	return schemas[0].name
}

func schemaOf(name string) (schema, error) {
	var names []string
	for _, s := range schemas {
		if s.name == name {
			return s, nil
		}
		names = append(names, s.name)
	}
	return schema{}, fmt.Errorf("schema %q is not known: it is one of %s; for others start from one and set the fields", name, strings.Join(names, ", "))
}

// over returns f with what it leaves open taken from the schema.
func (f Fields) over(s Fields) Fields {
	for _, n := range []struct{ to, from *int }{
		{&f.Count, &s.Count},
		{&f.Sequence, &s.Sequence},
		{&f.Data, &s.Data},
		{&f.Echo, &s.Echo},
		{&f.Time, &s.Time},
		{&f.Device, &s.Device},
	} {
		switch *n.to {
		case 0:
			*n.to = *n.from
		case -1:
			*n.to = 0
		}
	}
	f.CountUnit, f.EchoType = cmp.Or(f.CountUnit, s.CountUnit), cmp.Or(f.EchoType, s.EchoType)
	f.TimeUnit, f.TimeType = cmp.Or(f.TimeUnit, s.TimeUnit), cmp.Or(f.TimeType, s.TimeType)
	return f
}

const maxField = 1<<29 - 1

// validate says what is wrong with the declaration, after it was laid over its schema.
func (f *Fields) validate(echo string) error {
	var errs []error
	for _, n := range []struct {
		name  string
		value int
	}{{"count", f.Count}, {"sequence", f.Sequence}, {"data", f.Data}, {"echo", f.Echo}, {"time", f.Time}, {"device", f.Device}} {
		if n.value < 0 || n.value > maxField || n.value >= 19000 && n.value < 20000 {
			errs = append(errs, fmt.Errorf("field_%s %d is no field number: it must lie between 1 and %d, or be -1 for none", n.name, n.value, maxField))
		}
	}
	if f.Count == 0 || f.Data == 0 {
		errs = append(errs, errors.New("field_count and field_data are needed"))
	}
	if clash(f.Count, f.Sequence) || clash(f.Data, f.Echo, f.Time, f.Device) {
		errs = append(errs, errors.New("one field number can't have two meanings in a message"))
	}
	if echo == EchoSequence && (f.Sequence == 0 || f.Echo == 0) {
		errs = append(errs, errors.New("echo: sequence needs field_sequence and field_echo; if the server sends no number back, say echo: none"))
	}
	errs = append(errs,
		oneOf("count_unit", f.CountUnit, "bytes", "bits"), oneOf("echo_type", f.EchoType, "varint", "fixed64"),
		oneOf("time_unit", f.TimeUnit, "ns", "us", "ms", "s"), oneOf("time_type", f.TimeType, "varint", "fixed64", "double"))
	return errors.Join(errs...)
}

// clash reports whether two of the numbers that are set are the same.
func clash(numbers ...int) bool {
	seen := map[int]bool{0: false}
	for _, n := range numbers {
		if seen[n] {
			return true
		}
		seen[n] = n != 0
	}
	return false
}

func oneOf(key, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s %q: must be one of %s", key, value, strings.Join(allowed, ", "))
}
