// Package route makes one backend of several: the replicas of a model. A [Group] picks a replica for each request, by load and by what the
// replica is likely to have in its cache; stops asking one that fails; and starts a request again elsewhere as long as its client has
// nothing of the answer.
//
// One mutex guards the books: what is in flight, who waits, what the replicas were found to be. Decisions are functions of those books
// ([pick], differences). Nothing blocks while the mutex is held. [Group.Run] keeps the replicas running and watches them; everything else
// may be called from any goroutine, before it too. See design.md.
//
//	g, err := route.New(route.DefaultConfig("m"), []route.Replica{{Name: "a", Backend: a, Weight: 1, Workers: 4}}, route.Deps{})
package route

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"qr-gateway/backends"
)

// Config is how a group behaves.
type Config struct {
	Model string // served id
	// Tries is how many replicas a request may be given to, as long as its client has nothing of the answer. At least 1.
	Tries int
	// Sticky sends requests that begin alike to one replica, which then has their beginning in its cache.
	Sticky bool
	// StickyLoad is by how much more that replica may be loaded than another: a share of its workers, 0 to 1.
	StickyLoad float64
	Breaker    Breaker
	Wait       time.Duration // for a replica, before a request is refused
	// PrepareTry is how long one replica may take to prepare, while there is another.
	PrepareTry time.Duration
}

// Breaker says when a replica is left alone.
type Breaker struct {
	Failures int           // that make it so
	Window   time.Duration // in which they are counted
	Open     time.Duration // until one request tries again
}

// DefaultConfig fits engines on one machine and upstreams elsewhere.
func DefaultConfig(model string) Config {
	return Config{
		Model: model, Tries: 3, Sticky: true, StickyLoad: 0.5,
		Breaker: Breaker{Failures: 5, Window: 30 * time.Second, Open: 10 * time.Second},
		Wait:    30 * time.Second, PrepareTry: 5 * time.Second,
	}
}

// Validate reports every value out of range.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Model != "", "a route needs the id of a model")
	check(c.Tries >= 1, "tries is %d; it takes 1 or more", c.Tries)
	check(c.StickyLoad >= 0 && c.StickyLoad <= 1, "sticky load is %g; it takes 0 to 1", c.StickyLoad)
	check(c.Breaker.Failures >= 1, "breaker failures is %d; it takes 1 or more", c.Breaker.Failures)
	check(c.Breaker.Window >= time.Second, "breaker window is %s; it takes 1s or more", c.Breaker.Window)
	check(c.Breaker.Open > 0, "breaker open is %s; it takes more than 0", c.Breaker.Open)
	check(c.Wait > 0 && c.PrepareTry > 0, "wait is %s and prepare try %s; both take more than 0", c.Wait, c.PrepareTry)
	return errors.Join(errs...)
}

// Replica is one backend of a group.
type Replica struct {
	Name    string
	Backend backends.Backend
	Weight  float64 // how much a worker of it does, next to the others' workers
	Workers int     // requests that it runs at once
}

// Deps are what a group works with. All may be nil.
type Deps struct {
	Log  *slog.Logger
	Dice func() float64 // uniform in [0, 1); called with the group locked
}

// Group implements [backends.Backend] and the node's readiness over replicas.
type Group struct {
	cfg      Config
	log      *slog.Logger
	dice     func() float64
	replicas []*replica // never changed; what is in them mu guards

	mu        sync.Mutex
	waiting   []chan struct{} // in the order of their coming; the first is told of changes
	reference *reference      // what a replica has to be like; nil until one is known
}

// New checks the replicas and makes a group. Nothing is started. Replicas that are known to serve different models are refused.
func New(cfg Config, replicas []Replica, d Deps) (*Group, error) {
	g := &Group{cfg: cfg, log: d.Log, dice: d.Dice}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if g.dice == nil {
		g.dice = rand.Float64
	}
	g.log = g.log.With("model", cfg.Model)
	if err := errors.Join(cfg.Validate(), checkReplicas(replicas)); err != nil {
		return nil, fmt.Errorf("check route of model %s: %w", cfg.Model, err)
	}
	mean := 0.0
	for _, r := range replicas {
		mean += r.Weight / float64(len(replicas))
	}
	for _, r := range replicas {
		g.replicas = append(g.replicas, g.newReplica(r, r.Weight/mean*float64(r.Workers)))
	}
	return g, nil
}

func checkReplicas(all []Replica) error {
	if len(all) == 0 {
		return errors.New("it has no replicas")
	}
	var errs []error
	first := map[string]int{}
	for i, r := range all {
		if r.Name == "" || r.Backend == nil || r.Workers < 1 {
			errs = append(errs, fmt.Errorf("replica %q needs a name, a backend and at least one worker", r.Name))
			continue
		}
		if !(r.Weight > 0) || math.IsInf(r.Weight, 0) {
			errs = append(errs, fmt.Errorf("weight of replica %s is %g; it takes more than 0", r.Name, r.Weight))
		}
		if j, taken := first[r.Name]; taken {
			errs = append(errs, fmt.Errorf("replicas %d and %d are both named %s", j, i, r.Name))
		}
		first[r.Name] = i
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return checkSame(all)
}
