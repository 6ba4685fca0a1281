package openai

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// readAll reads events until the end.
func readAll(r io.Reader, limit int) (all []string, err error) {
	in := newEvents(r, limit)
	for {
		data, err := in.next()
		if err != nil {
			return all, err
		}
		all = append(all, string(data))
	}
}

func TestEvents(t *testing.T) {
	long := strings.Repeat("x", 40<<10) // more than the buffer
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"nothing":                  {"", nil},
		"one":                      {"data: a\n\n", []string{"a"}},
		"no space":                 {"data:a\n\ndata:  b\n\n", []string{"a", " b"}},
		"CRLF":                     {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		"several lines":            {"data: a\ndata:\ndata: b\n\n", []string{"a\n\nb"}},
		"other fields":             {": data: no\nevent: x\nid: 1\nretry: 5\ndatabase: no\ndata: a\nfoo\n\n", []string{"a"}},
		"no data":                  {"event: x\n\n\n\ndata: a\n\n", []string{"a"}},
		"empty data":               {"data\n\ndata:\n\n", []string{"", ""}},
		"a mark at the beginning":  {"\ufeffdata: a\n\n\ufeffdata: b\n\n", []string{"a"}},
		"no empty line at the end": {"data: a\n\ndata: b\n", []string{"a", "b"}},
		"no line end at the end":   {"data: a\n\ndata: b", []string{"a", "b"}},
		"long":                     {"data: " + long + "\ndata: " + long + "\n: " + long + "\n\n", []string{long + "\n" + long}},
	} {
		t.Run(name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"whole": strings.NewReader(c.in), "byte by byte": iotest.OneByteReader(strings.NewReader(c.in)),
				"with its end": iotest.DataErrReader(strings.NewReader(c.in)), "in halves": iotest.HalfReader(strings.NewReader(c.in)),
			} {
				got, err := readAll(r, 1<<20)
				if diff := cmp.Diff(c.want, got); diff != "" || !errors.Is(err, io.EOF) {
					t.Errorf("%s: events (-want +got), then %v:\n%.500s", how, err, diff)
				}
			}
		})
	}
}

func TestEventsBounded(t *testing.T) {
	for name, in := range map[string]string{
		"a line": "data: " + strings.Repeat("x", 101) + "\n\n", "without an end": "data: " + strings.Repeat("x", 1<<20),
		"many lines": strings.Repeat("data: "+strings.Repeat("x", 30)+"\n", 4) + "\n", "a comment": ":" + strings.Repeat("x", 200) + "\n",
	} {
		if got, err := readAll(strings.NewReader(in), 100); !errors.Is(err, errEventTooLong) {
			t.Errorf("%s: read %q, then %v", name, got, err)
		}
	}
	exact := strings.Repeat("x", 100)
	if got, err := readAll(strings.NewReader("data: "+exact+"\r\n\r\n"), 100); !errors.Is(err, io.EOF) || len(got) != 1 || got[0] != exact {
		t.Errorf("the longest that may be: read %q, then %v", got, err)
	}
}

func TestEventsBroken(t *testing.T) {
	broken := errors.New("broken")
	in := io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken))
	if got, err := readAll(in, 100); !errors.Is(err, broken) || len(got) != 1 {
		t.Errorf("read %q, then %v; want one event and the error", got, err)
	}
}

// reference reads events in the plainest way.
func reference(in []byte) (all []string) {
	in = bytes.TrimPrefix(in, []byte("\ufeff"))
	var data []string
	for line := range bytes.Lines(in) {
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if len(line) == 0 {
			if data != nil {
				all = append(all, strings.Join(data, "\n"))
			}
			data = nil
			continue
		}
		name, value, _ := strings.Cut(string(line), ":")
		if name == "data" {
			data = append(data, strings.TrimPrefix(value, " "))
		}
	}
	if data != nil {
		all = append(all, strings.Join(data, "\n"))
	}
	return all
}

// FuzzEvents holds that how the bytes arrive makes no difference, and that bounds are kept.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: a\r\n\r\n: c\ndata:b\ndata\n\nevent: x\ndata: [DONE]"), uint8(3))
	f.Add([]byte("\ufeffdata: {\"a\":1}\n\n\n\n"), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, part uint8) {
		const limit = 1 << 12
		got, err := readAll(&parts{in, int(part) + 1}, limit)
		if errors.Is(err, errEventTooLong) {
			if len(in) <= limit {
				t.Errorf("%d bytes are too long", len(in))
			}
			return
		}
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if diff := cmp.Diff(reference(in), got); diff != "" {
			t.Errorf("events of %q (-want +got):\n%s", in, diff)
		}
	})
}

// parts hands out what it has a few bytes at a time.
type parts struct {
	rest []byte
	size int
}

func (p *parts) Read(out []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(out[:min(len(out), p.size)], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}
