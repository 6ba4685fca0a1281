package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"qr-gateway/entropy/entropypb"
)

// Fault is something that a server does wrong on purpose, so that clients can be tested. Numbers are not affected.
type Fault struct {
	Kind  string        // of faultKinds
	Time  time.Duration // of delay; the most of jitter
	Bytes int           // of short and long: how many are missing or too many
	Code  codes.Code    // of code
	P     float64       // probability of each reply; 0: by Every
	Every int           // every so many replies
	After int           // not among the first so many replies
}

// faultKinds are all there are.
var faultKinds = []string{"delay", "jitter", "short", "long", "empty", "stale", "duplicate", "wrong-echo", "silent", "code", "close"}

// errCut ends a stream as if all were well.
var errCut = errors.New("the stream is cut")

// ParseFault reads KIND[:ARGUMENT][@WHEN]. The argument is a time for delay and jitter, bytes for short and long, a gRPC code for code.
// WHEN is a probability such as 0.01, /N for every N-th reply, or +N for all after the first N; the default is always. For example
// delay:20ms@0.1, short:1@/100, code:UNAVAILABLE@0.01, silent@+1000.
func ParseFault(text string) (Fault, error) {
	head, when, _ := strings.Cut(text, "@")
	kind, arg, _ := strings.Cut(head, ":")
	f := Fault{Kind: kind, P: 1, Bytes: 1}
	var err error
	switch kind {
	case "delay", "jitter":
		f.Time, err = time.ParseDuration(arg)
	case "short", "long":
		if arg != "" {
			f.Bytes, err = strconv.Atoi(arg)
		}
	case "code":
		err = f.Code.UnmarshalJSON([]byte(strconv.Quote(arg)))
	default:
		if arg != "" {
			err = errors.New("it takes no argument")
		}
	}
	if err == nil && when != "" {
		err = f.when(when)
	}
	if err == nil {
		err = f.Validate()
	}
	if err != nil {
		return Fault{}, fmt.Errorf("fault %q: %w", text, err)
	}
	return f, nil
}

func (f *Fault) when(text string) (err error) {
	switch text[0] {
	case '/':
		f.P = 0
		f.Every, err = strconv.Atoi(text[1:])
	case '+':
		f.After, err = strconv.Atoi(text[1:])
	default:
		f.P, err = strconv.ParseFloat(text, 64)
	}
	return err
}

// Validate says what is wrong.
func (f Fault) Validate() error {
	known := false
	for _, k := range faultKinds {
		known = known || k == f.Kind
	}
	switch {
	case !known:
		return fmt.Errorf("kind %q is not known: it is one of %s", f.Kind, strings.Join(faultKinds, ", "))
	case !(f.P >= 0 && f.P <= 1) || f.P == 0 && f.Every < 1 || f.Every < 0 || f.After < 0:
		return errors.New("when: must be a probability over 0 and up to 1, /N or +N")
	case (f.Kind == "delay" || f.Kind == "jitter") && (f.Time <= 0 || f.Time > time.Hour):
		return errors.New("needs a time, such as 20ms")
	case (f.Kind == "short" || f.Kind == "long") && (f.Bytes < 1 || f.Bytes > maxBytes):
		return errors.New("needs a number of bytes of 1 or more")
	case f.Kind == "code" && (f.Code == codes.OK || f.Code > codes.Unauthenticated):
		return errors.New("needs a gRPC code, such as UNAVAILABLE")
	}
	return nil
}

// faults decides which of them a reply gets.
type faults struct {
	all  []Fault
	dice func() float64

	mu   sync.Mutex // guards n, last and the dice
	n    int
	last *entropypb.EntropyResponse // an earlier reply, for stale ones
}

func newFaults(all []Fault, dice func() float64) *faults {
	if dice == nil {
		dice = rand.Float64
	}
	return &faults{all: all, dice: dice}
}

// chosen is what is done to one reply.
type chosen struct {
	wait  time.Duration
	fault Fault // the first that applies besides waiting; none has an empty kind
}

// next chooses for the next reply.
func (fs *faults) next() chosen {
	var c chosen
	if len(fs.all) == 0 {
		return c
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.n++
	for _, f := range fs.all {
		if fs.n <= f.After || f.Every > 0 && fs.n%f.Every != 0 || f.Every == 0 && fs.dice() >= f.P {
			continue
		}
		switch {
		case f.Kind == "delay":
			c.wait += f.Time
		case f.Kind == "jitter":
			c.wait += time.Duration(fs.dice() * float64(f.Time))
		case c.fault.Kind == "":
			c.fault = f
		}
	}
	return c
}

// spoil changes a reply, or returns the error that comes in its place.
func (c chosen) spoil(ctx context.Context, fs *faults, out *entropypb.EntropyResponse) error {
	if c.wait > 0 && !sleep(ctx, c.wait) {
		return status.FromContextError(ctx.Err()).Err()
	}
	switch c.fault.Kind {
	case "short":
		out.Data = out.Data[:max(len(out.Data)-c.fault.Bytes, 0)]
	case "long":
		out.Data = append(out.Data, make([]byte, c.fault.Bytes)...)
	case "empty":
		out.Data = nil
	case "wrong-echo":
		out.SequenceId ^= 1 << 40 // of no request that is under way: another's would pass as that one's answer
	case "code":
		return status.Error(c.fault.Code, "on purpose")
	case "silent":
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	fs.remember(c.fault.Kind == "stale", out)
	return nil
}

// remember keeps a reply for a stale one to come, or puts the kept one in its place.
func (fs *faults) remember(stale bool, out *entropypb.EntropyResponse) {
	if len(fs.all) == 0 {
		return
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	kept := fs.last
	fs.last = &entropypb.EntropyResponse{
		Data: out.Data, SequenceId: out.SequenceId, GenerationTimestampNs: out.GenerationTimestampNs, DeviceId: out.DeviceId,
	}
	if stale && kept != nil {
		out.Data, out.SequenceId, out.GenerationTimestampNs, out.DeviceId = kept.Data, kept.SequenceId, kept.GenerationTimestampNs, kept.DeviceId
	}
}

// unary is what it does to the reply of a call.
func (c chosen) unary(ctx context.Context, fs *faults, out *entropypb.EntropyResponse) error {
	if c.fault.Kind == "close" {
		return status.Error(codes.Unavailable, "cut on purpose")
	}
	return c.spoil(ctx, fs, out)
}

// stream is what it does to a reply on a stream. Silence there lets the next requests be answered.
func (c chosen) stream(ctx context.Context, fs *faults, out *entropypb.EntropyResponse, send func(*entropypb.EntropyResponse) error) error {
	switch c.fault.Kind {
	case "close":
		return errCut
	case "silent":
		return nil
	}
	if err := c.spoil(ctx, fs, out); err != nil {
		return err
	}
	if err := send(out); err != nil || c.fault.Kind != "duplicate" {
		return err
	}
	return send(out)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// validText keeps what the protocol can carry.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "?")
}
