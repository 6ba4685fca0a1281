package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"qr-gateway/backends"
	"qr-gateway/backends/account"
	"qr-gateway/backends/fake"
	"qr-gateway/backends/llama"
	"qr-gateway/backends/openai"
	"qr-gateway/backends/peek"
	"qr-gateway/backends/vllm"
	"qr-gateway/backends/vllm/sidecar"
	"qr-gateway/entropy/hub"
	"qr-gateway/gateway/config"
	"qr-gateway/gateway/node"
	"qr-gateway/gateway/observe"
	"qr-gateway/gateway/route"
	"qr-gateway/sampler"
)

// served is one model of the configuration and the backends that serve it, as one.
type served struct {
	cfg      config.Model
	backend  *route.Group
	replicas []route.Replica
}

// models are all of them; it never changes once made.
type models []served

// newModels makes the backends. Nothing is started.
func newModels(cfg config.Config, d backendDeps) (models, error) {
	var all models
	for _, m := range cfg.Models {
		s, err := newServed(m, cfg, d)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// newServed makes the backends of one model and what picks among them.
func newServed(m config.Model, cfg config.Config, d backendDeps) (served, error) {
	out := served{cfg: m}
	for _, member := range m.Backends() {
		own := d
		if len(m.Replicas) > 0 {
			own.log = d.log.With("replica", member.Name)
		}
		b, err := newBackend(member.Model, cfg, own)
		if err != nil {
			return served{}, err
		}
		out.replicas = append(out.replicas, route.Replica{Name: member.Name, Backend: b, Weight: member.Weight, Workers: member.Model.Workers})
	}
	var err error
	out.backend, err = route.New(routeConfig(m, cfg), out.replicas, route.Deps{Log: d.log})
	return out, err
}

func routeConfig(m config.Model, cfg config.Config) route.Config {
	r, c := m.Route, route.DefaultConfig(m.ID)
	c.Tries, c.Sticky, c.StickyLoad, c.Breaker, c.Wait = r.Tries, r.Sticky, r.StickyLoad, route.Breaker(r.Breaker), cfg.Engine.WaitReady
	return c
}

// workers is how many requests the model runs at once.
func (s served) workers() int {
	n := 0
	for _, r := range s.replicas {
		n += r.Workers
	}
	return n
}

// restarts sums up those of the replicas.
type restarts []observe.Restarter

// Restarts implements observe.Restarter.
func (all restarts) Restarts() uint64 {
	n := uint64(0)
	for _, r := range all {
		n += r.Restarts()
	}
	return n
}

// backendDeps is what backends work with.
type backendDeps struct {
	log     *slog.Logger
	entropy string                  // path of the socket on which the entropy sources are lent
	numbers account.Supplier        // the same sources, for what chooses tokens in this process
	choices map[string]vllm.Choices // of the sidecars of models on vLLM, by address; that of this process has none
	side    *sidecar.Server         // the latter; nil: no model needs it
}

// makeBackend makes the backend of a model. Nothing is started.
type makeBackend func(config.Model, config.Config, backendDeps) (backends.Backend, error)

// backendKinds is the table of backends, one line each, by the name that a model gives.
func backendKinds() map[string]makeBackend {
	return map[string]makeBackend{
		config.BackendFake:   newFake,
		config.BackendLlama:  newLlama,
		config.BackendOpenAI: newOpenAI,
		config.BackendPeek:   newPeek,
		config.BackendVLLM:   newVLLM,
	}
}

// backendNames are those that a model may name.
func backendNames() []string { return slices.Sorted(maps.Keys(backendKinds())) }

func newBackend(m config.Model, cfg config.Config, d backendDeps) (backends.Backend, error) {
	kinds := backendKinds()
	create, ok := kinds[m.Backend]
	if !ok {
		return nil, fmt.Errorf("model %s: backend %q is not one of %s", m.ID, m.Backend, strings.Join(backendNames(), ", "))
	}
	return create(m, cfg, d)
}

func newLlama(m config.Model, cfg config.Config, d backendDeps) (backends.Backend, error) {
	c := llamaConfig(m, cfg)
	c.Entropy = d.entropy
	return llama.New(c, llama.Deps{Log: d.log})
}

func newFake(m config.Model, _ config.Config, _ backendDeps) (backends.Backend, error) {
	c := fake.DefaultConfig()
	c.Model, c.Workers, c.Delay = m.ID, m.Workers, m.Delay
	if m.Context > 0 {
		c.Context = m.Context
	}
	if m.Description != "" {
		c.Description = m.Description
	}
	return fake.New(c, fake.Deps{})
}

func newOpenAI(m config.Model, _ config.Config, d backendDeps) (backends.Backend, error) {
	return openai.New(m.Upstream(), openai.Deps{Log: d.log})
}

func newPeek(m config.Model, _ config.Config, d backendDeps) (backends.Backend, error) {
	return peek.New(m.Peeking(), peek.Deps{Entropy: d.numbers, Log: d.log})
}

func newVLLM(m config.Model, _ config.Config, d backendDeps) (backends.Backend, error) {
	return vllm.New(m.OnVLLM(), vllm.Deps{Choices: d.choices[m.VLLM.Sidecar], Log: d.log})
}

// borrow makes the client by which this process itself draws from the entropy sources that it lends.
func borrow(socket string, log *slog.Logger) (*hub.Client, error) {
	cfg := hub.DefaultClientConfig()
	cfg.Socket = socket
	return hub.NewClient(cfg, log)
}

func llamaConfig(m config.Model, cfg config.Config) llama.Config {
	c := llama.DefaultConfig()
	c.ID, c.Description, c.Binary, c.Model = m.ID, m.Description, cfg.Engine.Binary, m.Path
	c.Workers, c.Context, c.Threads, c.Group, c.Chunk = m.Workers, m.Context, m.Threads, m.Group, m.Chunk
	c.GPULayers, c.FlashAttention, c.KVType, c.Poll = m.GPULayers, m.FlashAttention, m.KVType, m.Poll
	c.CanonicalCells = m.CanonicalCells
	c.WaitReady, c.StallTimeout, c.LogLevel = cfg.Engine.WaitReady, cfg.Engine.StallTimeout, cfg.Log.Level
	return c
}

// Backend implements gateway.Models.
func (m models) Backend(id string) (backends.Backend, sampler.Params, bool) {
	for _, s := range m {
		if s.cfg.ID == id {
			return s.backend, s.cfg.Params, true
		}
	}
	return nil, sampler.Params{}, false
}

// List implements gateway.Models and observe.Models.
func (m models) List() []backends.Info {
	infos := make([]backends.Info, len(m))
	for i, s := range m {
		infos[i] = s.backend.Info()
	}
	return infos
}

// anyReady says that one of them takes requests.
func (m models) anyReady() bool {
	return slices.ContainsFunc(m.List(), func(i backends.Info) bool { return i.Ready })
}

// nodeModels are the models as a node hosts them.
func (m models) nodeModels() []node.Model {
	hosted := make([]node.Model, len(m))
	for i, s := range m {
		hosted[i] = node.Model{ID: s.cfg.ID, Backend: s.backend, Workers: s.workers()}
	}
	return hosted
}

// restarters are the backends that count the restarts of their engine.
func (m models) restarters() map[string]observe.Restarter {
	found := map[string]observe.Restarter{}
	for _, s := range m {
		var all restarts
		for _, replica := range s.replicas {
			if r, ok := replica.Backend.(observe.Restarter); ok {
				all = append(all, r)
			}
		}
		if len(all) > 0 {
			found[s.cfg.ID] = all
		}
	}
	return found
}

// onVLLM are the models that have replicas on vLLM.
func (m models) onVLLM() map[string]observe.VLLM {
	found := map[string]observe.VLLM{}
	for _, s := range m {
		var all replicasOnVLLM
		for _, replica := range s.replicas {
			if b, ok := replica.Backend.(*vllm.Backend); ok {
				all = append(all, b)
			}
		}
		if len(all) > 0 {
			found[s.cfg.ID] = all
		}
	}
	return found
}

// replicasOnVLLM sums up those of a model.
type replicasOnVLLM []*vllm.Backend

// Counts implements observe.VLLM.
func (all replicasOnVLLM) Counts() (sum vllm.Counts) {
	for _, b := range all {
		c := b.Counts()
		sum.Native, sum.Mismatched, sum.Probes = sum.Native+c.Native, sum.Mismatched+c.Mismatched, sum.Probes+c.Probes
	}
	return sum
}

// routes are what picks among the backends of each model.
func (m models) routes() map[string]observe.Route {
	found := map[string]observe.Route{}
	for _, s := range m {
		found[s.cfg.ID] = s.backend
	}
	return found
}

// run keeps all backends running until ctx ends or one of them fails for good.
func (m models) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range m {
		g.Go(func() error { return s.backend.Run(ctx) })
	}
	g.Go(func() error { <-ctx.Done(); return nil }) // a stack without engines runs as long as the others
	return g.Wait()
}

// waitReady returns when every model can take a request.
func (m models) waitReady(ctx context.Context) error {
	for _, s := range m {
		if err := s.backend.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}
