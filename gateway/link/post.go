package link

import (
	"sync"

	"qr-gateway/gateway/link/linkpb"
)

// post holds what is to be sent to one worker. It is bounded: there is one room for each run, and runs are.
type post struct {
	wake chan struct{} // has a value when there may be something to send

	mu      sync.Mutex // guards all below
	beat    *linkpb.Beat
	control []*linkpb.FromGateway
	rooms   map[run]int64 // that are not told
	turns   []run         // of them
	cut     cutter
}

// echo sends a sign of life back, before everything else.
func (p *post) echo(b *linkpb.Beat) {
	p.mu.Lock()
	p.beat = b
	p.mu.Unlock()
	nudge(p.wake)
}

// maxPosts is how many messages may wait that are no rooms.
const maxPosts = 1 << 14

// add has a message sent. It reports whether there was room.
func (p *post) add(m *linkpb.FromGateway) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.control) >= maxPosts {
		return false
	}
	p.control = append(p.control, m)
	nudge(p.wake)
	return true
}

// room has the worker told that a run's frames up to seq are taken.
func (p *post) room(r run, seq int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rooms == nil {
		p.rooms = map[run]int64{}
	}
	if _, listed := p.rooms[r]; !listed {
		p.turns = append(p.turns, r)
	}
	p.rooms[r] = seq
	nudge(p.wake)
}

// next is the next message to send, or nil.
func (p *post) next() (*linkpb.FromGateway, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.beat; b != nil {
		p.beat = nil
		return &linkpb.FromGateway{What: &linkpb.FromGateway_Beat{Beat: b}}, nil
	}
	if len(p.turns) > 0 {
		r := p.turns[0]
		p.turns = p.turns[1:]
		seq := p.rooms[r]
		delete(p.rooms, r)
		return &linkpb.FromGateway{What: &linkpb.FromGateway_Room{Room: &linkpb.Room{Job: r.job, Epoch: r.epoch, Seq: seq}}}, nil
	}
	if part := p.cut.next(); part != nil {
		return &linkpb.FromGateway{What: &linkpb.FromGateway_Part{Part: part}}, nil
	}
	if len(p.control) == 0 {
		return nil, nil
	}
	m := p.control[0]
	p.control[0] = nil
	p.control = p.control[1:]
	if cut, err := p.cut.begin(m); err != nil || cut {
		return &linkpb.FromGateway{What: &linkpb.FromGateway_Part{Part: p.cut.next()}}, err
	}
	return m, nil
}
