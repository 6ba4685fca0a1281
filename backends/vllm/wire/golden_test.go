package wire

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden frames anew")

// described is a frame in words. The plugin's tests read the same files.
type described struct {
	Kind    Kind   `json:"kind"`
	Flags   uint8  `json:"flags"`
	Count   uint16 `json:"count"`
	Seq     uint64 `json:"seq"`
	Shape   *shape `json:"shape,omitempty"` // of the session that a step belongs to
	JSON    any    `json:"json,omitempty"`  // hello, welcome, refuse
	Begin   *begin `json:"begin,omitempty"`
	Handles []int  `json:"handles,omitempty"`
	Rows    []row  `json:"rows,omitempty"`
	Answers []ans  `json:"answers,omitempty"`
}

type shape struct {
	K     int `json:"k"`
	Vocab int `json:"vocab"`
	Rows  int `json:"max_rows"`
	Slots int `json:"slots"`
}

type begin struct {
	Handle  uint32  `json:"handle"`
	Step    uint32  `json:"step"`
	Fail    Fail    `json:"fail"`
	RID     string  `json:"rid"`
	Config  string  `json:"cfg"`
	Prompt  []int32 `json:"prompt"`
	History []int32 `json:"history"`
}

type row struct {
	Handle  uint32  `json:"handle"`
	Step    uint32  `json:"step"`
	K       int     `json:"k"`
	Form    Form    `json:"form"`
	Slot    int     `json:"slot"`
	Max     num     `json:"max"`
	LSE     num     `json:"lse"`
	Entropy num     `json:"entropy"`
	Finite  int     `json:"finite"`
	IDs     []int32 `json:"ids,omitempty"`
	Logits  []num   `json:"logits,omitempty"`
}

type ans struct {
	Token  int32 `json:"token"`
	Status uint8 `json:"status"`
}

// num is a float32 that may be no number.
type num float32

func (n num) MarshalJSON() ([]byte, error) {
	switch v := float64(n); {
	case math.IsNaN(v):
		return []byte(`"nan"`), nil
	case math.IsInf(v, 1):
		return []byte(`"inf"`), nil
	case math.IsInf(v, -1):
		return []byte(`"-inf"`), nil
	}
	return json.Marshal(float64(n))
}

func (n *num) UnmarshalJSON(b []byte) error {
	words := map[string]float64{`"nan"`: math.NaN(), `"inf"`: math.Inf(1), `"-inf"`: math.Inf(-1)}
	if v, ok := words[string(b)]; ok {
		*n = num(v)
		return nil
	}
	return json.Unmarshal(b, (*float32)(n))
}

var (
	small = &shape{K: 4, Vocab: 8, Rows: 4, Slots: 4}
	none  = num(math.Inf(-1))
)

// examples are all kinds of frames by name.
func examples() map[string]described {
	compact := func(handle, step uint32) row {
		return row{
			Handle: handle, Step: step, K: 4, Max: 2.5, LSE: 2.75, Entropy: 0.5, Finite: 6,
			IDs: []int32{3, 0, 7, 5}, Logits: []num{2.5, 1, -0.25, -3},
		}
	}
	short := row{
		Handle: 9, Step: 4, K: 4, Max: 1.5, LSE: 1.75, Entropy: 0.25, Finite: 2,
		IDs: []int32{6, 1, -1, -1}, Logits: []num{1.5, 0.125, none, none},
	}
	broken := row{
		Handle: 2, Step: 1, K: 4, Max: num(math.NaN()), LSE: num(math.NaN()), Entropy: num(math.NaN()), Finite: 8,
		IDs: []int32{0, 1, 2, 3}, Logits: []num{num(math.NaN()), num(math.Inf(1)), 0, 0},
	}
	shared := row{Handle: 5, Step: 2, Form: Shared, Slot: 3}
	inline := row{Handle: 6, Step: 1, Form: Inline, Logits: []num{0, 1, 2, 3, none, -1, -2, -3}}
	return map[string]described{
		"hello": {Kind: KindHello, JSON: Hello{
			Protocol: Protocol, Schema: Hash(), Session: "0f1e2d3c4b5a69788796a5b4c3d2e1f0", VLLM: "0.32.0", Runner: "v1", Rows: "compact",
			Vocab: 8, MaxRows: 4, Stride: 64, PID: 4242, TPSize: 1, Model: "tiny", MaxModelLen: 256,
		}},
		"welcome": {Kind: KindWelcome, JSON: Welcome{Protocol: Protocol, Schema: Hash(), Sidecar: "1.2.3", Top: 256, DeadlineMS: 200}},
		"refuse":  {Kind: KindRefuse, JSON: RefusedError{Code: CodeForm, Message: "a row has <form> 3", Hint: "install the same version"}},
		"begin": {Kind: KindBegin, Begin: &begin{
			Handle: 5, Step: 3, Fail: FailNative, RID: "chatcmpl-1.0", Config: `{"temperature":0.7,"qr_preset":"ä"}`, Prompt: []int32{1, 2, 70000}, History: []int32{4, -1, 6},
		}},
		"begin-bare":   {Kind: KindBegin, Begin: &begin{Handle: 1<<32 - 1, RID: "r", Config: "{}", Prompt: []int32{}, History: []int32{}}},
		"end":          {Kind: KindEnd, Count: 2, Handles: []int{5, 4294967295}},
		"step":         {Kind: KindStep, Count: 2, Seq: 1, Shape: small, Rows: []row{compact(5, 0), short}},
		"step-mixed":   {Kind: KindStep, Count: 4, Seq: 2, Shape: small, Rows: []row{compact(5, 1), shared, inline, short}},
		"step-rest":    {Kind: KindStep, Flags: FlagRest, Count: 1, Seq: 2, Shape: small, Rows: []row{shared}},
		"step-inline":  {Kind: KindStep, Count: 2, Seq: 1 << 40, Shape: small, Rows: []row{inline, inline}},
		"step-broken":  {Kind: KindStep, Count: 1, Seq: 7, Shape: small, Rows: []row{broken}},
		"choice":       {Kind: KindChoice, Count: 6, Seq: 2, Answers: []ans{{3, 0}, {-1, 1}, {-1, 2}, {-1, 3}, {-1, 4}, {-1, 5}}},
		"choice-large": {Kind: KindChoice, Count: 1, Seq: 1 << 40, Answers: []ans{{151935, 0}}},
	}
}

// encode makes the frame that d describes.
func (d *described) encode() ([]byte, error) {
	switch d.Kind {
	case KindBegin:
		g := d.Begin
		return (&Begin{Handle: g.Handle, Step: g.Step, Fail: g.Fail, RID: g.RID, Config: []byte(g.Config), Prompt: g.Prompt, History: g.History}).Append(nil), nil
	case KindEnd:
		var handles []uint32
		for _, h := range d.Handles {
			handles = append(handles, uint32(h))
		}
		return AppendEnd(nil, handles...), nil
	case KindStep:
		return AppendStep(nil, d.Seq, d.Flags, shownRows(d.Rows)), nil
	case KindChoice:
		var answers []Answer
		for _, a := range d.Answers {
			answers = append(answers, Answer(a))
		}
		return AppendChoice(nil, d.Seq, answers), nil
	default:
	}
	return AppendJSON(nil, d.Kind, d.JSON)
}

func shownRows(rows []row) []Shown {
	var out []Shown
	for _, r := range rows {
		s := Shown{Row: Row{
			Handle: r.Handle, Step: r.Step, K: r.K, Form: r.Form, Slot: r.Slot,
			Max: float32(r.Max), LSE: float32(r.LSE), Entropy: float32(r.Entropy), Finite: r.Finite,
		}, IDs: r.IDs}
		for _, v := range r.Logits {
			s.Logits = append(s.Logits, float32(v))
		}
		out = append(out, s)
	}
	return out
}

// describe reads a frame; of says what session a step belongs to.
func describe(f Frame, of *shape) (described, error) {
	d := described{Kind: f.Kind, Flags: f.Flags, Count: f.Count, Seq: f.Seq, Shape: of}
	var err error
	switch f.Kind {
	case KindBegin:
		var g *Begin
		if g, err = ParseBegin(f.Body); err == nil {
			d.Begin = &begin{g.Handle, g.Step, g.Fail, g.RID, string(g.Config), orEmpty(g.Prompt), orEmpty(g.History)}
		}
	case KindEnd:
		var handles []uint32
		handles, err = ParseEnd(nil, f.Header, f.Body)
		for _, h := range handles {
			d.Handles = append(d.Handles, int(h))
		}
	case KindStep:
		d.Rows, err = describeRows(f, of)
	case KindChoice:
		var answers []Answer
		answers, err = ParseChoice(nil, f.Header, f.Body)
		for _, a := range answers {
			d.Answers = append(d.Answers, ans(a))
		}
	default:
		err = json.Unmarshal(f.Body, &d.JSON)
	}
	return d, err
}

func orEmpty(ids []int32) []int32 { return append([]int32{}, ids...) }

func describeRows(f Frame, of *shape) (out []row, err error) {
	var s Step
	if err := s.Parse(f.Header, f.Body, Shape(*of)); err != nil {
		return nil, err
	}
	for i := range s.Rows {
		r := &s.Rows[i]
		d := row{
			Handle: r.Handle, Step: r.Step, K: r.K, Form: r.Form, Slot: r.Slot,
			Max: num(r.Max), LSE: num(r.LSE), Entropy: num(r.Entropy), Finite: r.Finite,
		}
		var logits []float32
		switch r.Form {
		case Compact:
			d.IDs, logits = make([]int32, of.K), make([]float32, of.K)
			s.Entries(r, d.IDs, logits)
		case Inline:
			logits = make([]float32, of.Vocab)
			s.Whole(r, logits)
		case Shared:
		}
		for _, v := range logits {
			d.Logits = append(d.Logits, num(v))
		}
		out = append(out, d)
	}
	return out, nil
}

// TestGoldenFrames holds both directions against the files that the plugin's tests read too.
func TestGoldenFrames(t *testing.T) {
	for name, d := range examples() {
		t.Run(name, func(t *testing.T) {
			frame, err := d.encode()
			if err != nil {
				t.Fatal(err)
			}
			words, err := json.MarshalIndent(d, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".bin", frame)
			golden(t, name+".json", append(words, '\n'))
			got, err := NewReader(bytes.NewReader(frame)).Next(MaxBody)
			if err != nil {
				t.Fatal(err)
			}
			back, err := describe(got, d.Shape)
			if err != nil {
				t.Fatal(err)
			}
			again, err := json.MarshalIndent(back, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(canonical(t, words), canonical(t, again)); diff != "" {
				t.Errorf("decoded frame (-want +got):\n%s", diff)
			}
		})
	}
	golden(t, "schema.txt", []byte(Schema))
}

// canonical is JSON without the order of its keys.
func canonical(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from what is encoded (run with -update and look at the difference)", path)
	}
}
