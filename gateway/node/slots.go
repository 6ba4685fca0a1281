package node

import (
	"context"
	"errors"
	"slices"
	"sync"

	"qr-gateway/gateway/queue"
)

// errFreed is why a claim is given up that waits for chats only: another worker is free, so it may take anything.
var errFreed = errors.New("another worker is free")

// slots are the workers of one model. The last free one is kept for chats: a client's own calls may take long, and nobody waits for them.
type slots struct {
	busy chan struct{} // a value for each worker that runs a job or claims one

	mu     sync.Mutex              // guards what follows, and makes setting stop one with looking at busy
	stop   context.CancelCauseFunc // of the claim that waits for chats only
	recent [][]uint64              // prefixes of the jobs that the workers had last, the newest last
}

// note remembers what a job leaves in the cache of the worker that runs it. Which of the caches it takes is the backend's choice;
// most likely the one that was used least lately.
func (s *slots) note(prefixes []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.recent) == cap(s.busy) {
		s.recent = slices.Delete(s.recent, 0, 1)
	}
	s.recent = append(s.recent, prefixes)
}

// warm are the prefixes that the workers have in their caches.
func (s *slots) warm() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Concat(s.recent...)
	slices.Sort(all)
	return slices.Compact(all)
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
	lease, err := n.deps.Queue.Claim(ctx, queue.Offer{
		Node: n.cfg.Name, Models: []string{m.ID}, Least: least, Loaded: []string{m.ID}, Warm: s.warm(),
	})
	if err == nil {
		s.note(lease.Job.Prefixes)
	}
	return lease, err
}
