//go:build linux

package device

import (
	"crypto/rand"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"qr-gateway/entropy"
)

func cicada(path string) Config {
	cfg := DefaultConfig()
	cfg.Path, cfg.Recipe, cfg.Timeout = path, "qcicada", 3*time.Second
	return cfg
}

// qcicada plays the device as it is documented: SHA-256 and generate_on_error are what it starts with.
type qcicada struct {
	frame  []byte
	config [configSize]byte
	reset  bool // it has its first configuration

	stubborn bool  // keeps its settings
	nack     bool  // says no to measurements
	flags    byte  // besides initialized
	short    bool  // sends less than it was asked for
	shots    []int // what was asked for
}

func (q *qcicada) play(b *bench) {
	if !q.reset {
		q.reset = true
		q.config = [configSize]byte{0: 0, 5: 0x3f, 6: 4}
	}
	listens(q.hear)(b)
}

// size is how long a command is.
func (q *qcicada) size() int {
	switch q.frame[0] {
	case cmdStart:
		return 4
	case cmdSetConfig:
		return 1 + configSize
	}
	return 1
}

func (q *qcicada) hear(b *bench, c byte) {
	q.frame = append(q.frame, c)
	if len(q.frame) < q.size() {
		return
	}
	frame := q.frame
	q.frame = nil
	ack := []byte{replyACK, flagInitialized | q.flags, 0, 0, 0, 0}
	switch frame[0] {
	case cmdStop:
		_, _ = b.master.Write(ack)
	case cmdInfo:
		info := make([]byte, 1+infoSize)
		info[0] = replyInfo
		copy(info[9:], "QC0000000217")
		_, _ = b.master.Write(info)
	case cmdGetConfig:
		_, _ = b.master.Write(append([]byte{replyConfig}, q.config[:]...))
	case cmdSetConfig:
		if !q.stubborn {
			copy(q.config[:], frame[1:])
		}
		_, _ = b.master.Write(ack)
	case cmdStart:
		q.measure(b, frame, ack)
	default:
		_, _ = b.master.Write([]byte{replyNACK})
	}
}

func (q *qcicada) measure(b *bench, frame, ack []byte) {
	n := int(binary.LittleEndian.Uint16(frame[2:]))
	q.shots = append(q.shots, n)
	if q.nack || frame[1] != 1 || q.config[modeAt] != modeRawNoise || q.config[flagsAt]&generateOnError != 0 {
		_, _ = b.master.Write([]byte{replyNACK})
		return
	}
	_, _ = b.master.Write(ack)
	if q.flags != 0 {
		return
	}
	if q.short {
		n--
	}
	p := make([]byte, n)
	_, _ = rand.Read(p)
	_, _ = b.master.Write(p)
}

func TestQCicada(t *testing.T) {
	q := new(qcicada)
	b := plug(t, q.play)
	s := opened(t, cicada(b.path))
	got := draw(t, s, 20480)
	if got.Device != "QC0000000217" || got.Class != entropy.ClassJIT || got.Shots != 2 {
		t.Errorf("got %+v", got)
	}
	_ = s.Close()
	b.unplug()
	if len(q.shots) != 2 || q.shots[0] != 13440 || q.shots[1] != 7040 {
		t.Errorf("asked for %v", q.shots)
	}
	if q.config[modeAt] != modeRawNoise || q.config[flagsAt] != 0x1f || q.config[6] != 4 {
		t.Errorf("set to %x", q.config)
	}
}

func TestQCicadaKeepsItsSettings(t *testing.T) {
	q := &qcicada{stubborn: true}
	_, err := Open(t.Context(), "test", cicada(plug(t, q.play).path), quiet())
	if entropy.KindOf(err) != entropy.KindConfig || !strings.Contains(err.Error(), "does not keep raw noise") {
		t.Errorf("error %v", err)
	}
}

func TestQCicadaSaysNo(t *testing.T) {
	for name, c := range map[string]struct {
		q    *qcicada
		kind entropy.Kind
		text string
	}{
		"NACK":         {&qcicada{nack: true}, entropy.KindRefused, "NACK"},
		"tests failed": {&qcicada{flags: 1 << 6}, entropy.KindHealth, "its flags are 01000001"},
		"short":        {&qcicada{short: true}, entropy.KindTimeout, "read 100 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cicada(plug(t, c.q.play).path)
			cfg.Timeout = time.Second
			s := opened(t, cfg)
			for range 2 {
				if _, err := s.Draw(t.Context(), make([]byte, 100)); entropy.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) {
					t.Errorf("error %v", err)
				}
			}
		})
	}
}

// Something else on the port is no QCicada.
func TestNoQCicada(t *testing.T) {
	for name, play := range map[string]func(*bench){"streams": streams, "silent": func(*bench) {}} {
		cfg := cicada(plug(t, play).path)
		cfg.Timeout = 300 * time.Millisecond
		if _, err := Open(t.Context(), "test", cfg, quiet()); entropy.KindOf(err) != entropy.KindConfig {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
