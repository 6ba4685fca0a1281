package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// code is the reason of a refusal.
func code(err error) string {
	if r, ok := errors.AsType[*RefusedError](err); ok {
		return r.Code
	}
	return ""
}

func TestReadEnds(t *testing.T) {
	whole := AppendEnd(nil, 1, 2)
	for n := range len(whole) {
		_, err := NewReader(bytes.NewReader(whole[:n])).Next(MaxBody)
		switch {
		case n == 0 && !errors.Is(err, io.EOF):
			t.Errorf("an empty stream: %v, want io.EOF", err)
		case n > 0 && code(err) != CodeTruncated:
			t.Errorf("%d of %d bytes: %v, want %s", n, len(whole), err, CodeTruncated)
		}
	}
	if _, err := NewReader(iotest.ErrReader(io.ErrClosedPipe)).Next(MaxBody); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a broken stream: %v, want its own error", err)
	}
}

func TestReadPieces(t *testing.T) {
	var b []byte
	for range 3 {
		b = AppendEnd(b, 1, 2, 3)
	}
	r := NewReader(iotest.OneByteReader(bytes.NewReader(b)))
	for range 3 {
		f, err := r.Next(MaxBody)
		if err != nil || len(f.Body) != 12 {
			t.Fatalf("frame of %d bytes, %v; want 12", len(f.Body), err)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		h    Header
		max  int
		want string
	}{
		{"kind 0", Header{}, MaxBody, CodeKind},
		{"kind 8", Header{Kind: 8}, MaxBody, CodeKind},
		{"over all limits", Header{Kind: KindStep, Size: MaxBody + 1}, MaxBody, CodeOversized},
		{"over the reader's limit", Header{Kind: KindHello, Size: MaxHello + 1}, MaxHello, CodeOversized},
		{"a size that never comes", Header{Kind: KindStep, Size: MaxBody}, MaxBody, CodeTruncated},
	} {
		r := NewReader(bytes.NewReader(c.h.Append(nil)))
		if _, err := r.Next(c.max); code(err) != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if cap(r.body) > 2*growBy {
			t.Errorf("%s: %d bytes were made ready for it", c.name, cap(r.body))
		}
	}
}

func TestHelloRefuses(t *testing.T) {
	good := examples()["hello"].JSON.(Hello)
	for name, spoil := range map[string]func(*Hello){
		"protocol": func(h *Hello) { h.Protocol = 2 },
		"schema":   func(h *Hello) { h.Schema = strings.Repeat("0", 16) },
		"session":  func(h *Hello) { h.Session = "a b" },
		"runner":   func(h *Hello) { h.Runner = "v3" },
		"rows":     func(h *Hello) { h.Rows = "auto" },
		"vocab":    func(h *Hello) { h.Vocab = 0 },
		"max_rows": func(h *Hello) { h.MaxRows = 1 << 16 },
		"stride":   func(h *Hello) { h.Vocab, h.Stride = 17, 64 },
		"tp_rank":  func(h *Hello) { h.TPRank = 1 },
		"model":    func(h *Hello) { h.Model = strings.Repeat("m", maxName+1) },
	} {
		h := good
		spoil(&h)
		frame, err := AppendJSON(nil, KindHello, h)
		if err != nil {
			t.Fatal(err)
		}
		_, err = ParseHello(frame[HeaderSize:])
		want := CodeHello
		if name == "protocol" || name == "schema" {
			want = CodeVersion
		}
		if code(err) != want || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v; want %s that names it", name, err, want)
		}
	}
	if _, err := ParseHello([]byte("[")); code(err) != CodeHello {
		t.Errorf("no JSON: %v", err)
	}
}

func TestBeginRefuses(t *testing.T) {
	whole := (&Begin{RID: "r", Config: []byte("{}"), Prompt: []int32{1}, History: []int32{2}}).Append(nil)[HeaderSize:]
	for n := range len(whole) {
		if _, err := ParseBegin(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes were taken", n, len(whole))
		}
	}
	huge := bytes.Clone(whole)
	for i := 8; i < 16; i++ {
		huge[i] = 0xff
	}
	if _, err := ParseBegin(huge); code(err) != CodeForm {
		t.Errorf("lengths over the frame: %v", err)
	}
	other := bytes.Clone(whole)
	other[18] = byte(FailNative) + 1
	if _, err := ParseBegin(other); code(err) != CodeForm {
		t.Errorf("fail of another kind: %v", err)
	}
}

func TestStepRefuses(t *testing.T) {
	ok := Shape(*small)
	rows := shownRows(examples()["step-mixed"].Rows)
	frame := AppendStep(nil, 1, 0, rows)
	h, err := ParseHeader(frame)
	if err != nil {
		t.Fatal(err)
	}
	body := frame[HeaderSize:]
	for name, c := range map[string]struct {
		spoil func(*Header, []byte, *Shape) []byte
		want  string
	}{
		"no rows":       {func(h *Header, b []byte, _ *Shape) []byte { h.Count = 0; return b }, CodeForm},
		"too many rows": {func(_ *Header, b []byte, s *Shape) []byte { s.Rows = 3; return b }, CodeForm},
		"other flags":   {func(h *Header, b []byte, _ *Shape) []byte { h.Flags = 2; return b }, CodeForm},
		"short heads":   {func(_ *Header, b []byte, _ *Shape) []byte { return b[:rowSize] }, CodeTruncated},
		"short entries": {func(_ *Header, b []byte, _ *Shape) []byte { return b[:len(b)-1] }, CodeForm},
		"long entries":  {func(_ *Header, b []byte, _ *Shape) []byte { return append(b, 0) }, CodeForm},
		"form 3":        {func(_ *Header, b []byte, _ *Shape) []byte { b[10] = 3; return b }, CodeForm},
		"reserved":      {func(_ *Header, b []byte, _ *Shape) []byte { b[11] = 1; return b }, CodeForm},
		"other k":       {func(_ *Header, b []byte, s *Shape) []byte { s.K = 5; return b }, CodeForm},
		"no slot":       {func(_ *Header, b []byte, s *Shape) []byte { s.Slots = 3; return b }, CodeForm},
	} {
		h, b, shape := h, bytes.Clone(body), ok
		b = c.spoil(&h, b, &shape)
		var s Step
		if err := s.Parse(h, b, shape); code(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestStepAllocatesNothing holds that reading and answering a step takes no memory.
func TestStepAllocatesNothing(t *testing.T) {
	frame := AppendStep(nil, 1, 0, shownRows(examples()["step"].Rows))
	src := bytes.NewReader(frame)
	r := NewReader(src)
	var s Step
	ids, logits := make([]int32, small.K), make([]float32, small.K)
	out, answers := make([]byte, 0, 64), make([]Answer, 2)
	n := testing.AllocsPerRun(100, func() {
		src.Reset(frame)
		r.r.Reset(src)
		f, err := r.Next(MaxBody)
		if err == nil {
			err = s.Parse(f.Header, f.Body, Shape(*small))
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Rows {
			s.Entries(&s.Rows[i], ids, logits)
		}
		out = AppendChoice(out[:0], f.Seq, answers)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzFrames reads any bytes as frames: it may refuse them, and never panics or takes more memory than was sent.
func FuzzFrames(f *testing.F) {
	for _, d := range examples() {
		frame, err := d.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(bytes.NewReader(data))
		for {
			got, err := r.Next(MaxBody)
			if err != nil {
				if code(err) == "" && !errors.Is(err, io.EOF) {
					t.Fatalf("error of another kind: %v", err)
				}
				return
			}
			if got.Kind == KindHello {
				_, _ = ParseHello(got.Body)
				continue
			}
			d, err := describe(got, small)
			if err != nil || got.Kind == KindWelcome || got.Kind == KindRefuse {
				continue
			}
			again, err := d.encode()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again[HeaderSize:], got.Body) && got.Kind != KindChoice && got.Kind != KindStep {
				t.Fatalf("%s is encoded again as other bytes", got.Kind)
			}
		}
	})
}
