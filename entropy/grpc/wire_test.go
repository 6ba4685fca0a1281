package grpc

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"qr-gateway/entropy/entropypb"
)

// vectors are messages and what they mean; see the file's own conventions.
type vectors struct {
	Schema []struct {
		Package  string
		Messages []struct {
			Name   string
			Fields []struct {
				Number int
				Name   string
				Type   string
			}
		}
		Services []struct {
			Methods []struct {
				Path   string
				Server bool `json:"server_streaming"`
			}
		}
	}
	Other []struct {
		Path string
	} `json:"other_methods"`
	Varints []struct{ Value, Hex string }
	Cases   []wireCase
	Client  []wireCase
	Older   struct {
		Replies []struct{ Hex, Result string } `json:"reply_data"`
	} `json:"older_client"`
	Defects []wireCase
}

type wireCase struct {
	Op          string
	Kind        string
	Message     string
	Hex         string
	Why         string
	Fields      map[string]any
	Expect      map[string]any
	ExpectError any `json:"expect_error"`
	Right       map[string]any
}

func load(t *testing.T) vectors {
	t.Helper()
	text, err := os.ReadFile("testdata/wire.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newMessage is the generated type of that name.
func newMessage(t *testing.T, name string) proto.Message {
	t.Helper()
	switch name {
	case "EntropyRequest":
		return &entropypb.EntropyRequest{}
	case "EntropyResponse":
		return &entropypb.EntropyResponse{}
	case "DrawRequest":
		return &entropypb.DrawRequest{}
	case "DrawResponse":
		return &entropypb.DrawResponse{}
	}
	t.Fatalf("no message %s", name)
	return nil
}

// fill sets the fields of m.
func fill(t *testing.T, m proto.Message, fields map[string]any) proto.Message {
	t.Helper()
	r := m.ProtoReflect()
	for name, v := range fields {
		d := r.Descriptor().Fields().ByName(protoreflect.Name(name))
		if d == nil {
			t.Fatalf("%s has no field %s", r.Descriptor().Name(), name)
		}
		r.Set(d, value(t, d.Kind(), v))
	}
	return m
}

func value(t *testing.T, kind protoreflect.Kind, v any) protoreflect.Value {
	t.Helper()
	text, _ := v.(string)
	if n, ok := v.(json.Number); ok {
		text = n.String()
	}
	var err error
	var out protoreflect.Value
	switch kind {
	case protoreflect.BytesKind:
		out = protoreflect.ValueOfBytes(unhex(t, text))
	case protoreflect.StringKind:
		out = protoreflect.ValueOfString(text)
	case protoreflect.BoolKind:
		out = protoreflect.ValueOfBool(v.(bool))
	case protoreflect.DoubleKind:
		var x float64
		if x, err = strconv.ParseFloat(text, 64); math.IsNaN(x) {
			x = math.Float64frombits(0x7ff8 << 48) // Go's own has another bit set
		}
		out = protoreflect.ValueOfFloat64(x)
	case protoreflect.Int32Kind:
		var x int64
		x, err = strconv.ParseInt(text, 10, 32)
		out = protoreflect.ValueOfInt32(int32(x))
	case protoreflect.Int64Kind:
		var x int64
		x, err = strconv.ParseInt(text, 10, 64)
		out = protoreflect.ValueOfInt64(x)
	case protoreflect.Uint32Kind:
		var x uint64
		x, err = strconv.ParseUint(text, 10, 32)
		out = protoreflect.ValueOfUint32(uint32(x))
	case protoreflect.Uint64Kind:
		var x uint64
		x, err = strconv.ParseUint(text, 10, 64)
		out = protoreflect.ValueOfUint64(x)
	default:
		t.Fatalf("kind %v", kind)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// published are the fields of the published protocol.
func published() *Fields { return &schemas[0].fields }

// encode is what we send: the client's own code for requests, the generated code for replies.
func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	switch m := m.(type) {
	case *entropypb.EntropyRequest:
		return published().encodeRequest(int(m.GetBytesNeeded()), m.GetSequenceId())
	case *entropypb.DrawRequest:
		return encodeDraw(m.GetSequenceId(), m.GetSourceId(), int(m.GetBlockBytes()))
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// decode is what we read: the client's own code for replies, the generated code for requests.
func decode(name string, msg []byte) (proto.Message, error) {
	switch name {
	case "EntropyResponse":
		r, err := published().decode(msg)
		out := &entropypb.EntropyResponse{Data: r.data, SequenceId: r.echo, DeviceId: r.device}
		if !r.time.IsZero() {
			out.GenerationTimestampNs = r.time.UnixNano()
		}
		return out, err
	case "DrawResponse":
		r, err := decodeDraw(msg)
		return &entropypb.DrawResponse{
			U: r.u, Z: r.z, SequenceId: r.echo, GenerationTimestampNs: r.timeNS, SourceId: r.sourceID, CoherenceZ: r.coherenceZ, CoherenceR: r.coherenceR,
			CoherenceValid: r.coherent, PurityLabel: r.purity, IntegratedBytes: r.bytes, Integrator: r.integrator,
		}, err
	case "EntropyRequest":
		m := &entropypb.EntropyRequest{}
		return m, proto.Unmarshal(msg, m)
	}
	m := &entropypb.DrawRequest{}
	return m, proto.Unmarshal(msg, m)
}

// same compares by field, so that unknown ones don't matter; floats by their bits.
func same(a, b proto.Message) bool {
	x, y := a.ProtoReflect(), b.ProtoReflect()
	fields := x.Descriptor().Fields()
	for i := range fields.Len() {
		d := fields.Get(i)
		v, w := x.Get(d), y.Get(d)
		if d.Kind() == protoreflect.DoubleKind {
			if math.Float64bits(v.Float()) != math.Float64bits(w.Float()) && !(math.IsNaN(v.Float()) && math.IsNaN(w.Float())) {
				return false
			}
		} else if !v.Equal(w) {
			return false
		}
	}
	return true
}

func TestMessages(t *testing.T) {
	v := load(t)
	for i, c := range append(v.Cases, v.Defects...) {
		if c.Op == "draw_reply" {
			continue
		}
		name := strconv.Itoa(i) + " " + c.Op + " " + c.Message + " " + c.Why
		want := c.Expect
		if c.Right != nil {
			want = c.Right
		}
		switch c.Op {
		case "encode", "encode_and_decode":
			if c.Op == "encode" {
				c.Hex = c.Right["hex"].(string)
			}
			if got := encode(t, fill(t, newMessage(t, c.Message), c.Fields)); hex.EncodeToString(got) != c.Hex {
				t.Errorf("%s: %x, want %s", name, got, c.Hex)
			}
			want = c.Fields
			fallthrough
		case "decode":
			got, err := decode(c.Message, unhex(t, c.Hex))
			if failed := c.ExpectError != nil || want["error"] != nil; failed {
				if err == nil {
					t.Errorf("%s: no error", name)
				}
				continue
			}
			if right := fill(t, newMessage(t, c.Message), want); err != nil || !same(got, right) {
				t.Errorf("%s: %v, %v, want %v", name, got, err, right)
			}
		default:
			t.Errorf("%s: unknown operation", name)
		}
	}
}

// TestClientRules: what a reply needs besides being a message.
func TestClientRules(t *testing.T) {
	v := load(t)
	for _, c := range append(v.Client, v.Defects...) {
		kind, msg := c.Kind, unhex(t, c.Hex)
		wrong := c.ExpectError != nil
		if c.Op == "draw_reply" {
			kind, wrong = c.Op, true
		}
		switch kind {
		case "entropy_reply":
			r, err := published().decode(msg)
			if err == nil {
				n := 1 // of a reply that must not be accepted, whatever was asked for
				if !wrong {
					n = len(unhex(t, c.Expect["data_hex"].(string)))
				}
				err = unpack("raw", make([]byte, n), r.data)
			}
			if (err != nil) != wrong {
				t.Errorf("%s: error %v, want one: %v", c.Hex, err, wrong)
			}
			if !wrong {
				checkReply(t, c, r)
			}
		case "draw_reply":
			r, err := decodeDraw(msg)
			if err == nil {
				err = r.check()
			}
			if (err != nil) != wrong {
				t.Errorf("%s: error %v, want one: %v", c.Hex, err, wrong)
			}
		}
	}
	for _, c := range v.Older.Replies {
		r, err := published().decode(unhex(t, c.Hex))
		switch {
		case c.Hex == "0a05aabb": // cut off: malformed, see the defects
			if err == nil {
				t.Errorf("%s: no error", c.Hex)
			}
		case c.Result == "EntropyUnavailableError" || c.Result == "":
			if len(r.data) != 0 {
				t.Errorf("%s: data %x", c.Hex, r.data)
			}
		case c.Hex == "0a01010a020203": // the older client takes the first of two, protobuf the last
			if !bytes.Equal(r.data, []byte{2, 3}) {
				t.Errorf("%s: data %x, want the last", c.Hex, r.data)
			}
		case err != nil || hex.EncodeToString(r.data) != c.Result:
			t.Errorf("%s: %x, %v, want %s", c.Hex, r.data, err, c.Result)
		}
	}
}

func checkReply(t *testing.T, c wireCase, r reply) {
	t.Helper()
	ns := int64(0)
	if !r.time.IsZero() {
		ns = r.time.UnixNano()
	}
	got := map[string]string{"data_hex": hex.EncodeToString(r.data), "sequence_id": strconv.FormatInt(r.echo, 10), "generation_timestamp_ns": strconv.FormatInt(ns, 10)}
	want := map[string]string{}
	for k, v := range c.Expect {
		switch v := v.(type) {
		case json.Number:
			want[k] = v.String()
		case string:
			want[k] = v
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", c.Hex, d)
	}
}

// TestSchema: the generated code and our defaults have the published names and numbers.
func TestSchema(t *testing.T) {
	v := load(t)
	d := DefaultConfig().resolve()
	paths := map[string]bool{d.Method: true, d.Stream: true, d.NumberMethod: true, d.NumberStream: true}
	for _, file := range v.Schema {
		for _, m := range file.Messages {
			desc := newMessage(t, m.Name).ProtoReflect().Descriptor()
			if string(desc.FullName()) != file.Package+"."+m.Name || desc.Fields().Len() != len(m.Fields) {
				t.Errorf("%s: is %s with %d fields", m.Name, desc.FullName(), desc.Fields().Len())
			}
			for _, f := range m.Fields {
				got := desc.Fields().ByNumber(protowire.Number(f.Number))
				if got == nil || string(got.Name()) != f.Name || got.Kind().String() != f.Type {
					t.Errorf("%s.%s: is %v", m.Name, f.Name, got)
				}
			}
		}
		for _, m := range file.Services[0].Methods {
			if !paths[m.Path] {
				t.Errorf("no default calls %s", m.Path)
			}
		}
	}
	if s, err := schemaOf("qrng"); err != nil || s.method != v.Other[0].Path {
		t.Errorf("schema qrng calls %s, want %s", s.method, v.Other[0].Path)
	}
}

func TestVarints(t *testing.T) {
	for _, c := range load(t).Varints {
		n, err := strconv.ParseUint(c.Value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := protowire.AppendVarint(nil, n); hex.EncodeToString(got) != c.Hex {
			t.Errorf("%s: %x, want %s", c.Value, got, c.Hex)
		}
		back, used := protowire.ConsumeVarint(unhex(t, c.Hex))
		if back != n || used != len(c.Hex)/2 {
			t.Errorf("%s: read as %d of %d bytes", c.Hex, back, used)
		}
	}
}

// TestRoles: the fields of other servers, as declared.
func TestRoles(t *testing.T) {
	at := time.Unix(1767225600, 123456000)
	double := protowire.AppendFixed64(protowire.AppendTag(nil, 7, protowire.Fixed64Type), math.Float64bits(1767225600.5))
	for name, c := range map[string]struct {
		fields Fields
		msg    []byte
		want   reply
	}{
		"microseconds": {
			schemas[1].fields, unhexString("0a03aabbcc10c0c488b184e991031a0464657631"),
			reply{data: []byte{0xaa, 0xbb, 0xcc}, time: at, device: "dev1"},
		},
		"double seconds": {
			Fields{Count: 1, Data: 2, Time: 7, TimeUnit: "s", TimeType: "double"},
			append([]byte{0x12, 1, 9}, double...),
			reply{data: []byte{9}, time: time.Unix(1767225600, 5e8)},
		},
		"fixed64 echo": {
			Fields{Count: 1, Data: 1, Echo: 7, EchoType: "fixed64"},
			protowire.AppendFixed64(protowire.AppendTag([]byte{0x0a, 1, 9}, 7, protowire.Fixed64Type), 42),
			reply{data: []byte{9}, echo: 42},
		},
		"another wire type than declared": {
			Fields{Count: 1, Data: 1, Echo: 2, EchoType: "varint"},
			unhexString("0a0109120161"),
			reply{data: []byte{9}, odd: "field 2 has wire type 2, which is not what was declared"},
		},
	} {
		got, err := c.fields.decode(c.msg)
		if d := cmp.Diff(c.want, got, cmp.AllowUnexported(reply{})); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, d)
		}
	}
}

func unhexString(s string) []byte { b, _ := hex.DecodeString(s); return b }
