package node

import (
	"context"
	"errors"
	"sync"

	"qr-gateway/gateway/queue"
)

// errFreed is why a claim is given up that waits for chats only: another worker is free, so it may take anything.
var errFreed = errors.New("another worker is free")

// slots are the workers of one model. The last free one is kept for chats: a client's own calls may take long, and nobody waits for them.
type slots struct {
	busy chan struct{} // a value for each worker that runs a job or claims one

	mu   sync.Mutex              // guards stop, and makes setting it one with looking at busy
	stop context.CancelCauseFunc // of the claim that waits for chats only
}

// enter prepares a claim by a worker that counts as busy already. done is to be called when the claim has returned.
func (s *slots) enter(ctx context.Context) (claim context.Context, least queue.Class, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.busy) < cap(s.busy) || cap(s.busy) == 1 {
		return ctx, queue.ClassBatch, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s.stop = cancel
	return ctx, queue.ClassChat, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stop = nil
		cancel(nil)
	}
}

// release frees the worker of a job that has ended.
func (s *slots) release() {
	<-s.busy
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop(errFreed)
	}
}

// offer claims one job. Its error is errFreed when it should be made again at once.
func (n *Node) offer(ctx context.Context, m Model, s *slots) (queue.Lease, error) {
	ctx, least, done := s.enter(ctx)
	defer done()
	return n.deps.Queue.Claim(ctx, queue.Offer{Node: n.cfg.Name, Models: []string{m.ID}, Least: least})
}
