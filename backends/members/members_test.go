package members

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEdit(t *testing.T) {
	replace := map[string][]byte{"model": []byte(`"m\\"`)}
	add := map[string][]byte{"id": []byte(`1`), "object": []byte(`"o"`)}
	for in, want := range map[string]string{
		`{}`:                     `{"model":"m\\","id":1,"object":"o"}`,
		` { } ` + "\n":           ` { "model":"m\\","id":1,"object":"o"} ` + "\n",
		`{"model":null,"id":{}}`: `{"model":"m\\","id":{},"object":"o"}`,
		`{"a":"}","id":[1,"]"]}`: `{"a":"}","id":[1,"]"],"model":"m\\","object":"o"}`,
		`{ "a" : {"model":"x"} , "model" : "x" }`:     `{ "a" : {"model":"x"} , "model" : "m\\" ,"id":1,"object":"o"}`,
		`{"mod\u0065l":"\"","id":-1e5,"object":true}`: `{"mod\u0065l":"m\\","id":-1e5,"object":true}`,
		`{"model":1,"model":2,"id":0,"object":0}`:     `{"model":"m\\","model":"m\\","id":0,"object":0}`,
	} {
		o, err := Parse([]byte(in))
		if err != nil {
			t.Errorf("parse %s: %v", in, err)
			continue
		}
		if got := string(o.Edit(replace, add)); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{
		`{"x":1}`: `{}`, `{"x":1,"a":2}`: `{"a":2}`, `{"a":2 , "x":[1,2]}`: `{"a":2}`, `{ "a":2,"x":1 , "b":3 }`: `{ "a":2 , "b":3 }`,
		`{"x":1,"x":2}`: `{}`, `{"a":1,"x":0,"x":0,"b":1}`: `{"a":1,"b":1}`, ` { "x" : 1 } `: ` {  } `, `{"x":1,"y":2,"x":3}`: `{"y":2}`,
	} {
		o, err := Parse([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(o.Edit(map[string][]byte{"x": nil}, map[string][]byte{"none": nil})); got != want {
			t.Errorf("%s without x is %s, want %s", in, got, want)
		}
	}
	for _, in := range []string{``, ` `, `[]`, `"a"`, `1`, `null`, `{`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{1:1}`} {
		if o, err := Parse([]byte(in)); err == nil {
			t.Errorf("%s was taken for an object of %v", in, o.members)
		}
	}
}

// FuzzEdit holds that an object keeps all that is not replaced, as a decoder sees it, and that nothing breaks on what is no JSON.
func FuzzEdit(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":[{"b":"\"]}"}],"model":"x"}`, `{"é":"\\","model" :1.50 }`, `[1]`, `{"a":1,}`, `{"a"`, `{"model":{},"a":"\u007d"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := Parse(raw)
		var before map[string]json.RawMessage
		if valid := json.Valid(raw) && json.Unmarshal(raw, &before) == nil && before != nil; !valid {
			if err == nil {
				o.Edit(map[string][]byte{"model": []byte(`1`)}, nil)
			}
			return
		}
		if err != nil {
			t.Fatalf("parse %q: %v", raw, err)
		}
		out := o.Edit(map[string][]byte{"model": []byte(`"m"`), "a": nil}, nil)
		var after map[string]json.RawMessage
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%q became %q: %v", raw, out, err)
		}
		delete(before, "a")
		before["model"] = json.RawMessage(`"m"`)
		if diff := cmp.Diff(before, after); diff != "" || !bytes.HasSuffix(out, raw[o.end:]) {
			t.Errorf("%q became %q:\n%s", raw, out, diff)
		}
	})
}
