package exec

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// childMode is the variable that makes the test binary a program.
const childMode = "QR_EXEC_TEST_CHILD"

func goProgram(mode string) Config {
	cfg := quick()
	cfg.Command = []string{must(os.Executable())}
	cfg.Env = []string{childMode + "=" + mode}
	return cfg
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func sayHello(body map[string]any) {
	text := must(json.Marshal(body))
	head := append([]byte(magicHello), binary.LittleEndian.AppendUint32(nil, version)...)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(text)))
	_, _ = os.Stdout.Write(append(head, text...))
}

func reply(sequence uint64, st status, device string, made time.Time, payload []byte) []byte {
	frame := append([]byte(magicAnswer), binary.LittleEndian.AppendUint64(nil, sequence)...)
	frame = binary.LittleEndian.AppendUint16(frame, uint16(st))
	frame = binary.LittleEndian.AppendUint16(frame, uint16(len(device)))
	frame = binary.LittleEndian.AppendUint32(frame, uint32(len(payload)))
	var ns int64
	if !made.IsZero() {
		ns = made.UnixNano()
	}
	frame = binary.LittleEndian.AppendUint64(frame, uint64(ns))
	return append(append(frame, device...), payload...)
}

func random(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.Read(p)
	return p
}

// behave is a program: a good one, but for one thing.
func behave(mode string) {
	switch mode {
	case "raw":
		_, _ = io.Copy(os.Stdout, rand.Reader)
		return
	case "mute":
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	case "exit":
		fmt.Fprintln(os.Stderr, "the port is taken")
		os.Exit(3)
	case "chatty":
		fmt.Println("hello, I am a program")
	case "version":
		_, _ = os.Stdout.WriteString("QRXH\x02\x00\x00\x00\x02\x00\x00\x00{}")
	case "nameless":
		sayHello(map[string]any{})
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		sayHello(map[string]any{"name": "stubborn"})
		answers(good)
		select {}
	case "flood":
		sayHello(map[string]any{"name": "flood"})
		for i := range 5000 {
			fmt.Fprintln(os.Stderr, "line", i, strings.Repeat("x", i%3*maxLine))
		}
		answers(good)
	default:
		sayHello(map[string]any{"name": "go program", "max_draw": 1000, "rate": 1e6, "class": "jit", "details": map[string]string{"firmware": "7"}})
		answers(misdeeds[mode])
	}
}

// answers answers requests until stdin ends.
func answers(how func(sequence uint64, n int) []byte) {
	var ask [askSize]byte
	for {
		if _, err := io.ReadFull(os.Stdin, ask[:]); err != nil {
			return
		}
		frame := how(binary.LittleEndian.Uint64(ask[4:]), int(binary.LittleEndian.Uint32(ask[12:])))
		_, _ = os.Stdout.Write(frame)
	}
}

func good(seq uint64, n int) []byte {
	return reply(seq, statusOK, "device 1", time.Now(), random(n))
}

// misdeeds are answers; the later ones are wrong when 13 bytes are asked.
var misdeeds = map[string]func(uint64, int) []byte{
	"good": good,
	"no device": func(seq uint64, n int) []byte {
		return reply(seq, statusOK, "", time.Time{}, random(n))
	},
	"old sequence":   on13(func(seq uint64, n int) []byte { return reply(seq-1, statusOK, "", time.Now(), random(n)) }),
	"next sequence":  on13(func(seq uint64, n int) []byte { return reply(seq+1, statusOK, "", time.Now(), random(n)) }),
	"short":          on13(func(seq uint64, n int) []byte { return reply(seq, statusOK, "", time.Now(), random(n-1)) }),
	"long":           on13(func(seq uint64, n int) []byte { return reply(seq, statusOK, "", time.Now(), random(n+1)) }),
	"huge":           on13(func(seq uint64, _ int) []byte { return hugeReply(seq) }),
	"twice":          on13(func(seq uint64, n int) []byte { return append(good(seq, n), good(seq+1, n)...) }),
	"no frame":       on13(func(uint64, int) []byte { return []byte(strings.Repeat("12345678", 8)) }),
	"unknown status": on13(func(seq uint64, _ int) []byte { return reply(seq, 99, "", time.Now(), nil) }),
	"long device": on13(func(seq uint64, n int) []byte {
		return reply(seq, statusOK, strings.Repeat("d", maxDevice+1), time.Now(), random(n))
	}),
	"long error": on13(func(seq uint64, _ int) []byte { return reply(seq, statusFailed, "", time.Now(), random(maxMessage+1)) }),
	"dies":       on13(func(uint64, int) []byte { fmt.Fprintln(os.Stderr, "out of luck"); os.Exit(7); return nil }),
	"dies halfway": on13(func(seq uint64, n int) []byte {
		_, _ = os.Stdout.Write(good(seq, n)[:answerHeader+4])
		os.Exit(7)
		return nil
	}),
	"silent":      on13(func(uint64, int) []byte { return nil }),
	"refused":     on13(func(seq uint64, _ int) []byte { return reply(seq, statusRefused, "", time.Time{}, []byte("no key")) }),
	"quota":       on13(func(seq uint64, _ int) []byte { return reply(seq, statusQuota, "", time.Time{}, []byte("used up")) }),
	"unavailable": on13(func(seq uint64, _ int) []byte { return reply(seq, statusUnavailable, "", time.Time{}, nil) }),
}

func on13(bad func(uint64, int) []byte) func(uint64, int) []byte {
	return func(seq uint64, n int) []byte {
		if n == 13 {
			return bad(seq, n)
		}
		return good(seq, n)
	}
}

func hugeReply(seq uint64) []byte {
	frame := reply(seq, statusOK, "", time.Now(), nil)
	binary.LittleEndian.PutUint32(frame[16:], 1<<32-1)
	return frame
}
