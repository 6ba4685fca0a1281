package link

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"

	"qr-gateway/backends"
	"qr-gateway/gateway/link/linkpb"
)

// Schema is a hash of all that travels: of the protocol's messages, and of the types that are sent in them as JSON.
func Schema() string {
	sum := sha256.New()
	file := protodesc.ToFileDescriptorProto(linkpb.File_gateway_link_linkpb_link_proto)
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(file)
	if err != nil {
		panic(fmt.Sprintf("marshal own descriptor: %v", err)) // it is a constant of the program
	}
	sum.Write(data)
	s := shape{out: sum, seen: map[reflect.Type]bool{}}
	for _, v := range []any{backends.Event{}, backends.Result{}, backends.Failure{}, backends.Info{}, backends.Prepared{}} {
		s.walk(reflect.TypeOf(v))
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// shape writes down what types look like as JSON.
type shape struct {
	out  io.Writer
	seen map[reflect.Type]bool
}

func (s *shape) walk(t reflect.Type) {
	fmt.Fprintf(s.out, "%s %s;", t, t.Kind())
	if s.seen[t] {
		return
	}
	s.seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		s.walk(t.Elem())
	case reflect.Map:
		s.walk(t.Key())
		s.walk(t.Elem())
	case reflect.Struct:
		s.fields(t)
	default: // its name and kind say all
	}
}

func (s *shape) fields(t reflect.Type) {
	own := reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]())
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() && !own {
			continue
		}
		fmt.Fprintf(s.out, "%s %s:", f.Name, f.Tag.Get("json"))
		s.walk(f.Type)
	}
}

// side is what one end says about itself.
type side struct {
	role, name      string
	version, schema string
}

func (s side) String() string {
	return fmt.Sprintf("%s %s is version %q (schema %s)", s.role, s.name, s.version, s.schema)
}

// skew says why two ends can't work together, or nil.
func skew(a, b side) error {
	ma, mb := major(a.version), major(b.version)
	if a.schema == b.schema && (ma == mb || ma == "" || mb == "") {
		return nil
	}
	return fmt.Errorf("versions differ: %s, %s: install the same release on both machines", a, b)
}

// major is the first number of a version such as v1.2.3; empty for one without numbers of that kind, such as a commit.
func major(version string) string {
	first, _, dotted := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if !dotted || first == "" || strings.Trim(first, "0123456789") != "" {
		return ""
	}
	return first
}
