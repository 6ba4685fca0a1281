package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Commands and replies of QCicada and Firefly; all numbers are little-endian.
const (
	cmdStart     = 0x04 // with 1 and a length: that many bytes, measured now
	cmdStop      = 0x05
	cmdGetConfig = 0x07
	cmdSetConfig = 0x08
	cmdInfo      = 0x0b

	replyACK    = 0x11
	replyNACK   = 0x12
	replyConfig = 0x17
	replyInfo   = 0x1b

	ackSize    = 5 // flags, bytes that are ready
	configSize = 12
	infoSize   = 56

	// qcicadaShot is the most bytes of one measurement.
	qcicadaShot = 13440

	// In the configuration.
	modeAt          = 0 // byte: what is done to the noise
	modeRawNoise    = 1
	flagsAt         = 5
	generateOnError = 1 << 5 // bytes are sent although a test has failed

	// In the flags of an ACK.
	flagInitialized = 1 << 0
	flagsBad        = 0xfc // voltage low, high or undefined; bit count, repetition count, adaptive proportion
)

var (
	errNack   = errors.New("the device says no (NACK)")
	errAnswer = errors.New("the device answers something else than was asked")
	errTests  = errors.New("the device's own tests have failed")
)

// setUpQCicada makes the device send raw noise, and nothing when its tests fail, and returns its serial number. A device that does not take
// these settings is not used.
func setUpQCicada(p port, due time.Time) (serial string, err error) {
	if err := quieten(p, due); err != nil {
		return "", err
	}
	info, err := ask(p, []byte{cmdInfo}, replyInfo, infoSize)
	if err != nil {
		return "", fmt.Errorf("ask for its serial number: %w", err)
	}
	cfg, err := ask(p, []byte{cmdGetConfig}, replyConfig, configSize)
	if err != nil {
		return "", fmt.Errorf("ask for its settings: %w", err)
	}
	cfg[modeAt] = modeRawNoise
	cfg[flagsAt] &^= generateOnError
	if _, err := ask(p, append([]byte{cmdSetConfig}, cfg...), replyACK, ackSize); err != nil {
		return "", fmt.Errorf("set raw noise: %w", err)
	}
	got, err := ask(p, []byte{cmdGetConfig}, replyConfig, configSize)
	if err != nil {
		return "", fmt.Errorf("read its settings back: %w", err)
	}
	if got[modeAt] != modeRawNoise || got[flagsAt]&generateOnError != 0 {
		return "", fmt.Errorf("%w: it does not keep raw noise and generate_on_error off", errAnswer)
	}
	serial, _, _ = strings.Cut(string(info[8:32]), "\x00")
	return strings.ToValidUTF8(serial, "?"), nil
}

// quietTime without a byte is the end of what a device was sending.
const quietTime = 50 * time.Millisecond

// quieten ends whatever it is doing, and reads until its answer to that has come and nothing else does. due bounds it.
func quieten(p port, due time.Time) error {
	if err := p.Flush(); err != nil {
		return err
	}
	if _, err := p.Write([]byte{cmdStop}); err != nil {
		return fmt.Errorf("stop it: %w", err)
	}
	var last []byte
	for buf := make([]byte, 4096); ; {
		p.SetDeadline(time.Now().Add(min(quietTime, time.Until(due))))
		n, err := p.Read(buf)
		last = append(last, buf[:n]...)
		last = last[max(0, len(last)-1-ackSize):]
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Until(due) <= 0:
			return fmt.Errorf("stop it: %w", err)
		case errors.Is(err, os.ErrDeadlineExceeded) && len(last) == 1+ackSize && last[0] == replyACK:
			p.SetDeadline(due)
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded) && len(last) > 0:
			return fmt.Errorf("%w: %x when it is told to stop", errAnswer, last)
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("stop it: %w", err)
		}
	}
}

// ask sends a command and reads its reply.
func ask(p port, frame []byte, reply byte, size int) ([]byte, error) {
	if _, err := p.Write(frame); err != nil {
		return nil, err
	}
	var code [1]byte
	if _, err := io.ReadFull(p, code[:]); err != nil {
		return nil, err
	}
	if code[0] == replyNACK {
		return nil, errNack
	}
	if code[0] != reply {
		return nil, fmt.Errorf("%w: %#02x, not %#02x", errAnswer, code[0], reply)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(p, body); err != nil {
		return nil, err
	}
	return body, nil
}

// readQCicada has the device measure len(buf) bytes.
func readQCicada(p port, buf []byte) error {
	if err := p.Flush(); err != nil {
		return err
	}
	frame := binary.LittleEndian.AppendUint16([]byte{cmdStart, 1}, uint16(len(buf)))
	ack, err := ask(p, frame, replyACK, ackSize)
	if err != nil {
		return fmt.Errorf("start a measurement: %w", err)
	}
	if ack[0]&flagsBad != 0 || ack[0]&flagInitialized == 0 {
		return fmt.Errorf("%w: its flags are %08b", errTests, ack[0])
	}
	if _, err := io.ReadFull(p, buf); err != nil {
		return fmt.Errorf("read %d bytes: %w", len(buf), err)
	}
	return nil
}
