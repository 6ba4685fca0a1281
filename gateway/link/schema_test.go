package link

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"qr-gateway/gateway/link/linkpb"
)

func TestSkew(t *testing.T) {
	for _, c := range []struct {
		versions, schemas string
		ok                bool
	}{
		{"v1.2.3 v1.9.0", "a a", true},
		{"v1.2.3 v2.0.0", "a a", false},
		{"1.2 v1.3", "a a", true},
		{"v1.2.3 v1.2.3", "a b", false},
		{"0123abc 98f", "a a", true},
		{"0123abc v2.0.0", "a a", true},
		{"unknown 0123abc", "a b", false},
	} {
		v, s := strings.Fields(c.versions), strings.Fields(c.schemas)
		err := skew(side{"gateway", "g", v[0], s[0]}, side{"worker", "w", v[1], s[1]})
		if (err == nil) != c.ok {
			t.Errorf("versions %s, schemas %s: %v", c.versions, c.schemas, err)
		}
		if err != nil && (!strings.Contains(err.Error(), v[0]) || !strings.Contains(err.Error(), v[1])) {
			t.Errorf("%v doesn't name both versions", err)
		}
	}
}

// TestSchemaSeesChanges holds that the hash follows what travels, and only that.
func TestSchemaSeesChanges(t *testing.T) {
	type inner struct{ B int }
	type changed struct{ B int64 }
	types := []any{
		struct{ A inner }{},
		struct{ A changed }{},
		struct{ A []inner }{},
		struct{ A map[string]inner }{},
		struct{ A *inner }{},
		struct {
			A inner `json:"a"`
		}{},
		struct {
			A inner
			C bool
		}{},
	}
	seen := map[string]bool{}
	for _, v := range types {
		var b strings.Builder
		(&shape{out: &b, seen: map[reflect.Type]bool{}}).walk(reflect.TypeOf(v))
		if seen[b.String()] {
			t.Errorf("%T looks like another one", v)
		}
		seen[b.String()] = true
	}
	if a, b := Schema(), Schema(); a != b || len(a) != 16 {
		t.Errorf("Schema() = %q, then %q", a, b)
	}
	var list struct{ Next *struct{ Next any } }
	(&shape{out: io.Discard, seen: map[reflect.Type]bool{}}).walk(reflect.TypeOf(list))
}

func TestParts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{partSize + 1, 2 * partSize, 3*partSize + 17} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		var c cutter
		m := &linkpb.Prepare{Number: 1, Request: data}
		if cut, err := c.begin(m); !cut || err != nil {
			t.Fatalf("%d bytes: begin = %v, %v", size, cut, err)
		}
		j := joiner{most: 4 * partSize}
		var whole []byte
		for p := c.next(); p != nil; p = c.next() {
			if whole != nil || proto.Size(p) > messageLimit {
				t.Fatalf("%d bytes: a part too many, or too large", size)
			}
			var err error
			if whole, err = j.add(p); err != nil {
				t.Fatal(err)
			}
		}
		var got linkpb.Prepare
		if err := proto.Unmarshal(whole, &got); err != nil || !bytes.Equal(got.Request, data) {
			t.Errorf("%d bytes: it came back as %d, %v", size, len(got.Request), err)
		}
	}
	var c cutter
	if cut, err := c.begin(&linkpb.Prepare{Request: make([]byte, 100)}); cut || err != nil {
		t.Errorf("a small one: %v, %v", cut, err)
	}
	for name, parts := range map[string][]*linkpb.Part{
		"too much": {{Data: make([]byte, 60)}, {Data: make([]byte, 60), Last: true}},
		"nothing":  {{Last: true}},
	} {
		j := joiner{most: 100}
		var err error
		for _, p := range parts {
			if _, err = j.add(p); err != nil {
				break
			}
		}
		if err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// TestPost holds the order of what a worker is sent, and that it is bounded.
func TestPost(t *testing.T) {
	p := post{wake: make(chan struct{}, 1)}
	drop := &linkpb.FromGateway{What: &linkpb.FromGateway_Drop{Drop: &linkpb.Drop{Number: 9}}}
	p.add(drop)
	for seq := range int64(3) {
		p.room(run{"a", 1}, seq+1)
		p.room(run{"b", 1}, seq+1)
	}
	p.echo(&linkpb.Beat{Number: 4})
	var got []string
	for m, err := p.next(); m != nil; m, err = p.next() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.Join(strings.Fields(m.String()), " "))
	}
	if want := `[beat:{number:4} room:{job:"a" epoch:1 seq:3} room:{job:"b" epoch:1 seq:3} drop:{number:9}]`; fmt.Sprint(got) != want {
		t.Errorf("sent are %s, want %s", got, want)
	}
	n := 0
	for p.add(drop) {
		n++
	}
	if n != maxPosts {
		t.Errorf("%d messages found room, want %d", n, maxPosts)
	}
}

func TestFinishedForgets(t *testing.T) {
	var f finished
	name := func(i int) run { return run{fmt.Sprint("job", i), 1} }
	for i := range keepFinished + 10 {
		f.add(name(i), 5)
		f.add(name(i), 6)
	}
	for i, want := range map[int]bool{0: false, 9: false, 10: true, keepFinished + 9: true, keepFinished + 10: false} {
		if f.has(name(i), 6) != want {
			t.Errorf("job %d is known: %v", i, !want)
		}
	}
	if f.has(name(100), 7) || !f.has(name(100), 2) || len(f.seqs) != keepFinished {
		t.Errorf("a later frame is known, an earlier one isn't, or %d are remembered", len(f.seqs))
	}
}

// TestSweep holds that runs which were told to end are forgotten in the end.
func TestSweep(t *testing.T) {
	c := &conn{boxes: map[run]*outbox{}}
	now := time.Now()
	for i, err := range []error{nil, ErrNoLink, ErrNoLink} {
		box := c.box(run{"job", int64(i)})
		box.err, box.since = err, now.Add(-time.Duration(i-1)*remember)
	}
	c.sweep(now.Add(time.Second))
	if len(c.boxes) != 2 || c.boxes[run{"job", 2}] != nil {
		t.Errorf("%d runs are left", len(c.boxes))
	}
}
