package link

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/link/linkpb"
)

// Bounds of an announcement.
const (
	maxModels = 4096
	maxWarm   = 1 << 16
)

// announce takes note of what the worker hosts.
func (e *session) announce(ctx context.Context, m *linkpb.Announce) error {
	var models []backends.Info
	if len(m.Models) > 0 {
		var err error
		if models, err = unpackInfos(m.Models); err != nil {
			return fmt.Errorf("%w: %w", errProtocol, err)
		}
	}
	if len(models) > maxModels || len(m.Warm) > maxWarm || len(m.Cells) > maxModels {
		return fmt.Errorf("%w: %d models and %d prefixes were announced; up to %d and %d are taken", errProtocol, len(models), len(m.Warm), maxModels, maxWarm)
	}
	free := map[string]int{}
	for _, c := range m.Cells {
		free[c.Model] = int(c.Free)
	}
	e.mu.Lock()
	e.models, e.warm, e.free = models, m.Warm, free
	e.mu.Unlock()
	e.server.note(models)
	e.server.compare(ctx, e, models)
	return nil
}

// note remembers what models are like, for when nobody hosts them.
func (s *Server) note(models []backends.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range models {
		if _, old := s.known[m.Model]; old || len(s.known) < maxModels {
			s.known[m.Model] = m
		}
	}
	s.tell()
}

// Worker is how a gateway sees a worker.
type Worker struct {
	Name    string
	Version string
	Peer    string // address that it dialled from
	Since   time.Time
	Heard   time.Time       // when it said something last
	Models  []backends.Info // that it hosts
	Warm    int             // prompt prefixes in its caches
	Free    map[string]int  // tokens that its caches have room for, by model
	Runs    int             // with frames that are being delivered
	Asks    int             // requests that it prepares
}

// Workers lists those that are linked, by name.
func (s *Server) Workers() []Worker {
	var out []Worker
	for _, e := range s.sessions() {
		out = append(out, e.describe())
	}
	slices.SortFunc(out, func(a, b Worker) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (s *Server) sessions() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.workers))
}

func (e *session) describe() Worker {
	e.mu.Lock()
	defer e.mu.Unlock()
	return Worker{
		Name: e.hello.Worker, Version: e.hello.Version, Peer: e.peer, Since: e.since, Heard: e.heard, Models: slices.Clone(e.models),
		Warm: len(e.warm), Free: maps.Clone(e.free), Runs: len(e.inboxes), Asks: len(e.asks),
	}
}

// Warm are the prompt prefixes that a worker has in its caches.
func (s *Server) Warm(worker string) []uint64 {
	s.mu.Lock()
	e := s.workers[worker]
	s.mu.Unlock()
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.warm)
}

// List describes every model that a worker hosts or has hosted, by id.
func (s *Server) List() []backends.Info {
	s.mu.Lock()
	ids := slices.Sorted(maps.Keys(s.known))
	s.mu.Unlock()
	out := make([]backends.Info, len(ids))
	for i, id := range ids {
		out[i] = s.info(id)
	}
	return out
}

// host is a worker as one that could prepare a request.
type host struct {
	*session
	info backends.Info
	asks int
}

// hosts are the linked workers that host a model, the best first: ready, then least busy.
func (s *Server) hosts(model string) []host {
	var out []host
	for _, e := range s.sessions() {
		if h, ok := e.host(model); ok {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, better)
	return out
}

func (e *session) host(model string) (host, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := slices.IndexFunc(e.models, func(i backends.Info) bool { return i.Model == model })
	if at < 0 || e.closed {
		return host{}, false
	}
	return host{e, e.models[at], len(e.asks)}, true
}

func better(a, b host) int {
	if a.info.Ready != b.info.Ready {
		if a.info.Ready {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.asks, b.asks), cmp.Compare(load(&a.info), load(&b.info)), strings.Compare(a.hello.Worker, b.hello.Worker))
}

func load(i *backends.Info) float64 { return float64(i.Busy) / float64(max(i.Workers, 1)) }

// info is a model as the workers that host it are together.
func (s *Server) info(model string) backends.Info {
	all := s.hosts(model)
	if len(all) == 0 {
		return s.unhosted(model)
	}
	out := all[0].info
	out.Workers, out.Busy, out.Replicas = 0, 0, nil
	for _, h := range all {
		out.Workers += h.info.Workers
		out.Busy += h.info.Busy
		if n := h.info.Context; n > 0 {
			out.Context = min(cmp.Or(out.Context, n), n) // where they differ, what all can do
		}
		out.Resumes = out.Resumes && (h.info.Resumes || !h.info.Ready)
		out.Replicas = append(out.Replicas, backends.ReplicaInfo{
			Name: h.hello.Worker, Backend: h.info.Backend, Ready: h.info.Ready, State: h.info.State, Reason: h.info.Reason,
			InFlight: h.info.Busy, Workers: h.info.Workers,
		})
	}
	return out
}

// unhosted is a model that no linked worker has, as it was known last.
func (s *Server) unhosted(model string) backends.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.known[model]
	out.Model, out.Ready, out.State, out.Reason = model, false, "unreachable", "no worker that hosts it is linked"
	out.Workers, out.Busy, out.Replicas = 0, 0, nil
	return out
}
