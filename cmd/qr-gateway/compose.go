package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"

	"qr-gateway/backends/supply"
	"qr-gateway/backends/vllm/sidecar"
	"qr-gateway/gateway"
	"qr-gateway/gateway/config"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/node"
	"qr-gateway/gateway/observe"
	"qr-gateway/gateway/records"
	"qr-gateway/gateway/sources"
)

// stack is all that a process runs.
type stack struct {
	cfg    config.Config
	role   role
	stdout io.Writer
	log    *slog.Logger

	lent    *sources.Sources // nil for a gateway, whose workers own the sources
	models  models           // none for a gateway
	side    *sidecar.Server  // nil: none of the models needs one in this process
	cluster *cluster
	metrics *observe.Metrics
}

// close frees what a stack has opened that does not run.
func (s *stack) close() error {
	if s.lent == nil {
		return nil
	}
	return s.lent.Close()
}

// compose makes the parts, in the order in which they start: each needs those before it until it has ended.
func (s *stack) compose(ctx context.Context) ([]part, error) {
	parts, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	if s.role.edge {
		if err := s.dispatch(); err != nil {
			return nil, err
		}
	}
	if s.role.work {
		worker, err := node.New(s.nodeConfig(), s.models.nodeModels(), node.Deps{
			Queue: s.cluster.queue, Logs: s.cluster.queue, Losses: s.metrics, Frames: s.cluster.framesTo, Log: s.log,
		})
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{"node", worker.Run})
	}
	parts = append(parts, part{"announcements", s.cluster.announce})
	more, err := s.front(ctx)
	return append(parts, more...), err
}

// open makes what all else stands on: sources and engines, the queue, the links.
func (s *stack) open(ctx context.Context) (parts []part, err error) {
	if s.role.work {
		if s.lent, err = sources.Open(ctx, sourcesConfig(s.cfg), sources.Deps{Log: s.log}); err != nil {
			return nil, err
		}
		if parts, err = s.openModels(); err != nil {
			return nil, err
		}
	}
	if s.cluster, err = newCluster(ctx, s.cfg, s.role, s.models, s.log); err != nil {
		return nil, err
	}
	from := observe.Sources{Queue: s.cluster.queue, Models: s.list(), Engines: s.models.restarters(), Routes: s.models.routes()}
	from.VLLM = s.models.onVLLM()
	if s.side != nil {
		from.Sidecar = s.side
	}
	if s.lent != nil {
		from.Entropy = s.lent
	}
	s.metrics = observe.NewMetrics(from)
	return append(parts, s.cluster.parts()...), nil
}

// openModels makes the backends, and what they draw from.
func (s *stack) openModels() ([]part, error) {
	lent, err := borrow(s.lent.Socket(), s.log)
	if err != nil {
		return nil, err
	}
	d := backendDeps{log: s.log, entropy: s.lent.Socket(), numbers: supply.New(lent)}
	more, err := d.sidecars(s.cfg)
	if err != nil {
		return nil, err
	}
	s.side = d.side
	if s.models, err = newModels(s.cfg, d); err != nil {
		return nil, err
	}
	parts := append([]part{{"entropy", s.lent.Run}, {"numbers", lent.Run}}, more...)
	return append(parts, part{"engines", s.models.run}), nil
}

// list is the models that the process shows.
func (s *stack) list() gateway.Models {
	if s.role.work {
		return s.models
	}
	return remotes{s.cfg.Models, s.cluster.server}
}

func (s *stack) dispatch() (err error) {
	c := dispatch.DefaultConfig()
	c.Owner, c.Carry, c.Join = s.cluster.owner(), s.cluster.carries, s.cfg.Queue.Repeats == config.RepeatsJoin
	c.Outlive = s.cluster.shared != nil
	s.cluster.hub, err = dispatch.New(c, dispatch.Deps{Queue: s.cluster.queue, Log: s.cluster.queue, Waits: s.metrics})
	return err
}

func (s *stack) nodeConfig() node.Config {
	c := nodeConfig(s.cfg)
	if s.cluster.shared != nil {
		c.Name = s.cluster.self.Name
	}
	return c
}

// front makes what listens: the edge, or for a worker alone what watches it.
func (s *stack) front(ctx context.Context) ([]part, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Server.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; another port can be given with --listen HOST:PORT (make run LISTEN=HOST:PORT)", s.cfg.Server.Listen, err)
	}
	if !s.role.edge {
		return []part{{"probes", func(ctx context.Context) error {
			s.log.InfoContext(ctx, "worker runs", "worker", s.cluster.self.Name, "probes", ln.Addr().String())
			return serveProbes(ctx, ln, s.metrics.Handler(), s.models.anyReady)
		}}}, nil
	}
	srv, err := s.edge()
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	id := s.cfg.Models[0].ID
	return []part{
		{"greeting", func(ctx context.Context) error { return greet(ctx, s.models, id, ln.Addr(), s.stdout, s.log) }},
		{"server", func(ctx context.Context) error { return srv.Serve(ctx, ln) }},
	}, nil
}

func (s *stack) edge() (*gateway.Server, error) {
	d := gateway.Deps{
		Models: s.list(), Dispatcher: s.cluster.hub, Sources: declared{s.cfg}, Presets: s.cfg.Library, Cards: cards(s.cfg.Models),
		Metrics: s.metrics.Handler(), Observer: s.metrics, Log: s.log,
	}
	if s.cfg.Records.Keep > 0 {
		kept, err := records.New(records.Config{Keep: s.cfg.Records.Keep, Bytes: int64(s.cfg.Records.Bytes)})
		if err != nil {
			return nil, err
		}
		d.Records = kept
	}
	if s.lent != nil {
		d.Sources = s.lent
	}
	return gateway.New(edgeConfig(s.cfg), d)
}
