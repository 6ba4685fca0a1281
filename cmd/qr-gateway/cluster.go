package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/config"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/link"
	"qr-gateway/gateway/node"
	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/memory"
	"qr-gateway/gateway/queue/redis"
)

// role is what a process does: take requests, run them, or both.
type role struct {
	name       string
	edge, work bool
}

// line is a queue that keeps time while it runs.
type line interface {
	queue.Queue
	Run(ctx context.Context) error
}

// cluster is what a process shares with those on other machines. Where the queue is its own it shares nothing.
type cluster struct {
	queue  line
	shared *redis.Queue // the queue, if others have it too
	server *link.Server // where workers link to; nil without a shared queue or link.listen, and for a worker
	client *link.Client // links to gateways; nil without a shared queue, and for a gateway
	hub    *dispatch.Dispatcher
	self   redis.Member
	also   *redis.Member // the worker that a gateway is as well, or nil
	models func() []redis.MemberModel
	fixed  []string // gateways that the configuration names

	carries bool   // answers come through the shared queue, not by links
	nonce   string // tells this process from another one of its name: requests would end that the other one's clients wait for
	log     *slog.Logger
}

// newCluster opens the queue and what a role needs to share it.
func newCluster(ctx context.Context, cfg config.Config, r role, all models, log *slog.Logger) (_ *cluster, err error) {
	c := &cluster{
		log: log, fixed: cfg.Worker.Gateways, models: all.members, nonce: rand.Text(),
		self: redis.Member{Role: r.name, Name: processName(cfg.Worker.Name), Version: version(), Started: time.Now().UTC().Truncate(time.Second)},
	}
	if cfg.Redis.URL == "" {
		if r.edge != r.work {
			return nil, fmt.Errorf("a %s shares its queue with others: set redis.url", r.name)
		}
		c.queue, err = memory.New(queueConfig(cfg))
		return c, err
	}
	if err := c.open(ctx, cfg, r); err != nil {
		return nil, err
	}
	if err := c.join(cfg, r, all); err != nil {
		return nil, errors.Join(err, c.shared.Close())
	}
	return c, nil
}

func (c *cluster) open(ctx context.Context, cfg config.Config, r role) error {
	c.carries = r.edge && cfg.Redis.Tokens == config.TokensLog
	switch {
	case !r.edge || cfg.Link.Listen != "":
	case !r.work:
		return errors.New("a gateway has its requests prepared by workers, by their links to it: set link.listen to where they reach it, or use serve with redis.tokens: log")
	case !c.carries:
		return errors.New("with redis.url, workers on other machines may run the requests of this process: set link.listen to where they reach it, or redis.tokens: log")
	}
	var err error
	if c.shared, err = openShared(ctx, cfg, c.log); err != nil {
		return err
	}
	c.queue = c.shared
	return nil
}

// openShared opens the queue that a configuration shares with others.
func openShared(ctx context.Context, cfg config.Config, log *slog.Logger) (*redis.Queue, error) {
	if cfg.Redis.URL == "" {
		return nil, errors.New("no queue is shared: redis.url is not set")
	}
	password, err := cfg.Redis.Password()
	if err != nil {
		return nil, fmt.Errorf("read redis.password_file: %w", err)
	}
	c := redis.DefaultConfig()
	c.URL, c.Password, c.Name, c.Config = cfg.Redis.URL, password, cfg.Redis.Name, queueConfig(cfg)
	return redis.Open(ctx, c, redis.Deps{Log: log})
}

// frames hands on to a dispatcher that is made after the server.
type frames struct{ c *cluster }

func (f frames) Deliver(ctx context.Context, frame dispatch.Frame) error {
	return f.c.hub.Deliver(ctx, frame)
}

// join makes both ends of the links.
func (c *cluster) join(cfg config.Config, r role, all models) (err error) {
	if r.edge && r.work {
		also := c.self
		also.Role = redis.RoleWorker
		c.also = &also
	}
	if r.edge && cfg.Link.Listen != "" {
		if c.server, err = link.New(cfg.LinkServer(c.self.Name, version()), link.Deps{Frames: frames{c}, Log: c.log}); err != nil {
			return err
		}
		c.self.Address = c.server.Owner()
	}
	if !r.work {
		return nil
	}
	own := cfg.LinkClient(version())
	own.Worker = c.self.Name
	c.client, err = link.NewClient(own, link.ClientDeps{Models: hosted{all}, Log: c.log})
	if err != nil && c.server != nil {
		return errors.Join(err, c.server.Close())
	}
	return err
}

// owner is the address that the jobs of this process carry.
func (c *cluster) owner() string {
	switch {
	case c.carries:
		return dispatch.LogOwner + c.self.Name + "/" + c.nonce
	case c.server == nil:
		return ""
	}
	return c.server.Owner()
}

// framesTo finds the way to the gateway that owns a job; nil is the log of the job.
func (c *cluster) framesTo(owner string) node.FrameSink {
	switch {
	case c.hub != nil && owner == c.owner():
		return c.hub
	case strings.HasPrefix(owner, dispatch.LogOwner):
		return nil
	}
	return c.client.For(owner)
}

// hosted are a worker's models as its links know them.
type hosted struct{ models }

// Backend implements link.Models.
func (h hosted) Backend(id string) (backends.Backend, bool) {
	b, _, ok := h.models.Backend(id)
	return b, ok
}

// members are the models as others are told of them.
func (m models) members() []redis.MemberModel {
	var out []redis.MemberModel
	for _, i := range m.List() {
		out = append(out, redis.MemberModel{ID: i.Model, State: i.State, Workers: i.Workers, Busy: i.Busy, Context: i.Context})
	}
	return out
}

// processName is unique enough where nobody has chosen a name.
func processName(chosen string) string {
	if chosen != "" {
		return chosen
	}
	host, err := os.Hostname()
	if err != nil {
		host = "process"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// parts are what runs of the cluster: below the queue's users, in the order in which they start.
func (c *cluster) parts() []part {
	out := []part{{"queue", c.queue.Run}}
	if c.server != nil {
		out = append(out, part{"links of workers", c.server.Run})
	}
	if c.client != nil {
		out = append(out, part{"links to gateways", c.client.Run})
	}
	return out
}

// How often a process says that it is there, and how long that holds.
const (
	announceEvery = 2 * time.Second
	announceHold  = 3 * announceEvery
)

// announce says that this process is there, learns of gateways, and ends when somebody asks the worker to drain; one that is a gateway as well
// ends whole.
func (c *cluster) announce(ctx context.Context) error {
	if c.shared == nil {
		<-ctx.Done()
		return nil
	}
	t := time.NewTicker(announceEvery)
	defer t.Stop()
	for {
		drain, err := c.tell(ctx)
		if drain { // each question is told once, whatever else fails
			c.log.InfoContext(ctx, "asked to drain: what runs may end first, and nothing more is taken")
			return c.depart(ctx)
		}
		if err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "announce to the queue", "error", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return c.depart(ctx)
		}
	}
}

// depart takes back what was announced. Where the queue can't be reached it is forgotten all the same, a little later.
func (c *cluster) depart(ctx context.Context) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), announceEvery)
	defer stop()
	err := c.shared.Depart(ctx, c.self)
	if c.also != nil {
		err = errors.Join(err, c.shared.Depart(ctx, *c.also))
	}
	if err != nil {
		c.log.InfoContext(ctx, "leave the queue", "error", err)
	}
	return nil
}

func (c *cluster) tell(ctx context.Context) (drain bool, err error) {
	m := c.self
	if c.also != nil {
		m = *c.also
		if _, err := c.shared.Announce(ctx, c.self, announceHold); err != nil {
			return false, err
		}
	}
	m.Models = c.models()
	if drain, err = c.shared.Announce(ctx, m, announceHold); err != nil || c.client == nil {
		return drain, err
	}
	all, err := c.shared.Members(ctx)
	if err != nil {
		return drain, err
	}
	return drain, c.client.SetGateways(c.gateways(all))
}

// gateways are those to keep a link to: named by the configuration or known to the queue, but not this process itself.
func (c *cluster) gateways(all []redis.Member) []string {
	out := slices.Clone(c.fixed)
	for _, m := range all {
		if m.Address != "" && m.Address != c.self.Address && !slices.Contains(out, m.Address) {
			out = append(out, m.Address)
		}
	}
	return out
}
