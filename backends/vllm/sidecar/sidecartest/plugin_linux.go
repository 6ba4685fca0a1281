// Package sidecartest has a plugin for tests: the other end of a sidecar's socket, without an engine.
package sidecartest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"qr-gateway/backends/vllm/wire"
)

// Plugin is one connection. It belongs to one goroutine.
type Plugin struct {
	Conn    *net.UnixConn
	Hello   wire.Hello
	Welcome wire.Welcome
	Seq     uint64    // of the newest step
	Fail    wire.Fail // of what is begun

	reader  *wire.Reader
	memory  []byte
	handle  uint32
	out     []byte
	answers []wire.Answer
	fd      int
}

// Options are how a plugin says hello.
type Options struct {
	Vocab, MaxRows int
	Session        string
	Rows           string // compact or full; empty: compact
	NoMemory       bool
	Seals          int               // of the memfd; 0: those that it must have
	Spoil          func(*wire.Hello) // changes the hello before it is sent
}

// Dial connects and is welcomed. The error is a *[wire.RefusedError] where the sidecar refuses.
func Dial(socket string, o Options) (*Plugin, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	p := &Plugin{Conn: conn, reader: wire.NewReader(conn), fd: -1, Hello: wire.Hello{
		Protocol: wire.Protocol, Schema: wire.Hash(), Session: o.Session, VLLM: "test", Runner: "v1", Rows: "compact",
		Vocab: o.Vocab, MaxRows: o.MaxRows, TPSize: 1, Model: "tiny", MaxModelLen: 1 << 16,
	}}
	if o.Session == "" {
		p.Hello.Session = fmt.Sprintf("%p", p)
	}
	if o.Rows != "" {
		p.Hello.Rows = o.Rows
	}
	if err := p.greet(o); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Plugin) greet(o Options) error {
	if !o.NoMemory {
		if err := p.makeMemory(o.Seals); err != nil {
			return err
		}
	}
	if o.Spoil != nil {
		o.Spoil(&p.Hello)
	}
	frame, err := wire.AppendJSON(nil, wire.KindHello, p.Hello)
	if err != nil {
		return err
	}
	var rights []byte
	if p.fd >= 0 {
		rights = syscall.UnixRights(p.fd)
	}
	if _, _, err := p.Conn.WriteMsgUnix(frame, rights, nil); err != nil && !errors.Is(err, syscall.EPIPE) { // one that has refused already says why
		return err
	}
	f, err := p.Read()
	if err != nil {
		return err
	}
	return json.Unmarshal(f.Body, &p.Welcome)
}

// makeMemory makes room for all rows.
func (p *Plugin) makeMemory(seals int) error {
	p.Hello.Stride = (4*p.Hello.Vocab + 63) / 64 * 64
	fd, err := unix.MemfdCreate("rows", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return err
	}
	p.fd = fd
	size := p.Hello.Stride * p.Hello.MaxRows
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return err
	}
	if p.memory, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return err
	}
	if seals == 0 {
		seals = unix.F_SEAL_SHRINK
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	return err
}

// Truncate cuts the memory off, as a plugin that has gone mad does.
func (p *Plugin) Truncate() error { return unix.Ftruncate(p.fd, 0) }

// Slot is a row of the memory.
func (p *Plugin) Slot(i int) []float32 {
	b := p.memory[i*p.Hello.Stride:]
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), p.Hello.Vocab)
}

// Read reads a frame; a refusal is an error.
func (p *Plugin) Read() (wire.Frame, error) {
	f, err := p.reader.Next(wire.MaxBody)
	if err != nil {
		return f, err
	}
	if f.Kind == wire.KindRefuse {
		var r wire.RefusedError
		if err := json.Unmarshal(f.Body, &r); err != nil {
			return f, err
		}
		return f, &r
	}
	return f, nil
}

// Begin gives a request the next handle.
func (p *Plugin) Begin(rid, cfg string, prompt, history []int32) (handle uint32, err error) {
	p.handle++
	g := wire.Begin{Handle: p.handle, Step: uint32(len(history)), Fail: p.Fail, RID: rid, Config: []byte(cfg), Prompt: prompt, History: history}
	return p.handle, p.Send(g.Append(nil))
}

// End ends handles.
func (p *Plugin) End(handles ...uint32) error { return p.Send(wire.AppendEnd(nil, handles...)) }

// Send writes anything.
func (p *Plugin) Send(frame []byte) error {
	_, err := p.Conn.Write(frame)
	return err
}

// Step shows rows and returns the answers, valid until the next Step.
func (p *Plugin) Step(rows ...wire.Shown) ([]wire.Answer, error) {
	p.Seq++
	return p.ask(0, rows)
}

// Rest shows whole rows that were asked for.
func (p *Plugin) Rest(rows ...wire.Shown) ([]wire.Answer, error) { return p.ask(wire.FlagRest, rows) }

func (p *Plugin) ask(flags uint8, rows []wire.Shown) ([]wire.Answer, error) {
	p.out = wire.AppendStep(p.out[:0], p.Seq, flags, rows)
	return p.Exchange(p.out)
}

// Exchange sends a step frame and reads the answers.
func (p *Plugin) Exchange(frame []byte) ([]wire.Answer, error) {
	if err := p.Send(frame); err != nil {
		return nil, err
	}
	f, err := p.Read()
	if err != nil {
		return nil, err
	}
	p.answers, err = wire.ParseChoice(p.answers[:0], f.Header, f.Body)
	return p.answers, err
}

// Close ends the connection.
func (p *Plugin) Close() error {
	err := p.Conn.Close()
	if p.memory != nil {
		err = errors.Join(err, unix.Munmap(p.memory))
		p.memory = nil
	}
	if p.fd >= 0 {
		err = errors.Join(err, unix.Close(p.fd))
		p.fd = -1
	}
	return err
}

// Compact is the k largest logits of a row, with what is told of the rest.
func (p *Plugin) Compact(handle uint32, step int, row []float32) wire.Shown {
	return Compact(handle, step, row, min(p.Welcome.Top, p.Hello.Vocab))
}

// Shared puts a row into a slot of the memory.
func (p *Plugin) Shared(handle uint32, step, slot int, row []float32) wire.Shown {
	copy(p.Slot(slot), row)
	return wire.Shown{Row: wire.Row{Handle: handle, Step: uint32(step), Form: wire.Shared, Slot: slot}}
}

// Compact makes the compact row of k entries, the largest first.
func Compact(handle uint32, step int, row []float32, k int) wire.Shown {
	s := wire.Shown{Row: wire.Row{Handle: handle, Step: uint32(step), K: k}}
	var order []int32
	for id, v := range row {
		if !math.IsInf(float64(v), -1) {
			order = append(order, int32(id))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(row[b], row[a]) })
	measure(&s.Row, row, order)
	for i := range k {
		id, v := int32(-1), float32(math.Inf(-1))
		if i < len(order) {
			id, v = order[i], row[order[i]]
		}
		s.IDs, s.Logits = append(s.IDs, id), append(s.Logits, v)
	}
	return s
}

// measure sets what is told of a whole row. order has what is finite, or broken, from the largest on.
func measure(r *wire.Row, row []float32, order []int32) {
	r.Finite, r.Max, r.LSE = len(order), float32(math.Inf(-1)), float32(math.Inf(-1))
	if len(order) == 0 {
		return
	}
	r.Max = row[order[0]]
	var sum, weighed float64
	for _, id := range order {
		x := float64(row[id]) - float64(r.Max)
		sum += math.Exp(x)
		weighed += x * math.Exp(x)
	}
	r.LSE = float32(float64(r.Max) + math.Log(sum))
	r.Entropy = float32(math.Log(sum) - weighed/sum)
}
