package exec

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAnswerRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sequence := rapid.Uint64().Draw(t, "sequence")
		device := rapid.StringN(0, 60, maxDevice).Draw(t, "device")
		made := time.Unix(0, rapid.Int64Range(1, 1<<62).Draw(t, "made"))
		payload := rapid.SliceOfN(rapid.Byte(), 0, 20000).Draw(t, "payload")
		frame := reply(sequence, statusOK, device, made, payload)
		got := make([]byte, len(payload))
		a, err := readAnswer(bufio.NewReaderSize(bytes.NewReader(frame), readBuffer), sequence, got, "before")
		if err != nil || !bytes.Equal(got, payload) || a.device != device || !a.made.Equal(made) {
			t.Fatalf("got %+v, error %v", a, err)
		}
		// Cut anywhere, it is no answer.
		cut := rapid.IntRange(0, len(frame)-1).Draw(t, "cut")
		if _, err := readAnswer(bufio.NewReaderSize(bytes.NewReader(frame[:cut]), readBuffer), sequence, got, ""); err == nil {
			t.Fatalf("a reply cut at %d of %d is taken", cut, len(frame))
		}
	})
}

func TestHelloNeedsSense(t *testing.T) {
	for body, text := range map[string]string{
		`{"name": "x", "class": "fresh"}`:                             "class",
		`{"name": "x", "max_draw": -1}`:                               "max_draw",
		`{"name": "x", "rate": -1}`:                                   "rate",
		`{"name": "` + strings.Repeat("n", 300) + `"}`:                "name",
		`{"name": "x", "device": "` + strings.Repeat("d", 300) + `"}`: "device",
		`{"name": 1}`: "read hello",
		`[`:           "read hello",
	} {
		if _, err := readHello(bytes.NewReader(helloFrame(body))); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%.40s: error %v", body, err)
		}
	}
	if h, err := readHello(bytes.NewReader(helloFrame(`{"name": "x", "later": {"a": 1}}`))); err != nil || h.Name != "x" {
		t.Errorf("unknown keys are for later: %v", err)
	}
}

func helloFrame(body string) []byte {
	head := binary.LittleEndian.AppendUint32([]byte(magicHello), version)
	return append(binary.LittleEndian.AppendUint32(head, uint32(len(body))), body...)
}

// FuzzAnswer: what is taken for a reply is one: of this request, of this length, to the byte.
func FuzzAnswer(f *testing.F) {
	f.Add(reply(7, statusOK, "d", time.Now(), make([]byte, 16)))
	f.Add(reply(7, statusFailed, "", time.Time{}, []byte("no")))
	f.Add(reply(8, statusOK, "", time.Time{}, make([]byte, 16)))
	f.Add(hugeReply(7))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := make([]byte, 16)
		a, err := readAnswer(bufio.NewReaderSize(bytes.NewReader(data), readBuffer), 7, p, "")
		if no, ok := errors.AsType[*replyError](err); ok && (no.status == statusOK || len(no.message) > maxMessage) {
			t.Fatalf("error reply %+v", no)
		}
		if err == nil && !bytes.HasPrefix(data, reply(7, statusOK, a.device, a.made, p)) {
			t.Fatalf("got %+v with %x of %x", a, p, data)
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add(helloFrame(`{"name":"x","class":"jit","max_draw":1,"rate":1.5,"device":"d","details":{"a":"b"}}`))
	f.Add([]byte("QRXHxxxxxxxxxxxxx"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if h, err := readHello(bytes.NewReader(data)); err == nil && (h.check() != nil || h.Name == "") {
			t.Fatalf("took %+v", h)
		}
	})
}
