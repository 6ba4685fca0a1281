package service

import (
	"sync"

	"qr-gateway/backends"
	pb "qr-gateway/backends/llama/enginepb"
)

// mailbox holds what a worker has generated and nobody has sent yet. Deltas are joined, so that a slow reader gets fewer
// and larger ones, and the worker never waits. It holds one answer at most, so it is bounded by the model's context.
type mailbox struct {
	mu      sync.Mutex // guards all below but signal
	started *pb.Started
	delta   *pb.Delta
	content []byte
	reason  []byte
	closed  bool
	signal  chan struct{} // one slot: something changed
}

func newMailbox() *mailbox { return &mailbox{signal: make(chan struct{}, 1)} }

// put adds an event. It keeps nothing of it.
func (m *mailbox) put(e backends.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := e.Started; s != nil {
		m.started = &pb.Started{
			Worker: uint32(s.Worker), PromptTokens: uint32(s.PromptTokens), CachedTokens: uint32(s.CachedTokens),
			ContentBytes: uint32(s.Content), ReasoningBytes: uint32(s.Reasoning),
		}
	}
	if e.Content != "" || e.Reasoning != "" || len(e.Tokens) > 0 {
		if m.delta == nil {
			m.delta = &pb.Delta{}
		}
		m.content = append(m.content, e.Content...)
		m.reason = append(m.reason, e.Reasoning...)
		m.delta.Tokens = append(m.delta.Tokens, e.Tokens...)
	}
	m.wake()
	return nil
}

// close says that nothing more will be put.
func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.wake()
}

func (m *mailbox) wake() {
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// take waits for something to send. After open is false there is nothing more.
func (m *mailbox) take() (events []*pb.GenerateResponse, open bool) {
	<-m.signal
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.started != nil {
		events = append(events, &pb.GenerateResponse{Event: &pb.GenerateResponse_Started{Started: m.started}})
		m.started = nil
	}
	if d := m.delta; d != nil {
		d.Content, d.Reasoning = string(m.content), string(m.reason)
		events = append(events, &pb.GenerateResponse{Event: &pb.GenerateResponse_Delta{Delta: d}})
		m.delta, m.content, m.reason = nil, m.content[:0], m.reason[:0]
	}
	return events, !m.closed
}
