package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
)

// SystemName is the source that is always there.
const SystemName = "system"

// ErrUnknownSource is a name that no source has.
var ErrUnknownSource = errors.New("unknown entropy source")

// Set is the open sources of one configuration.
type Set struct {
	order []string // as opened; closed from the end
	all   map[string]member
}

type member struct {
	spec  Spec
	guard *guard.Guard
	src   entropy.Source // the guard with the powers of the source
}

// Open opens, guards, probes and tests the sources, those that don't need each other at the same time. The operating system's generator
// is added as "system" where no spec has the name. On an error nothing stays open.
func Open(ctx context.Context, specs []Spec, d Deps) (*Set, error) {
	plans, err := plan(specs)
	if err != nil {
		return nil, err
	}
	if d.StartTimeout == 0 {
		d.StartTimeout = 10 * time.Second
	}
	s := &Set{all: map[string]member{}}
	d.lookup = s.Get
	for len(plans) > 0 {
		ready, rest := s.ready(plans)
		if err := s.openAll(ctx, ready, d); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		plans = rest
	}
	return s, nil
}

// ready takes the plans whose fallback and members are open. plan has made sure that there always is one.
func (s *Set) ready(plans []planned) (ready, rest []planned) {
	for _, p := range plans {
		if slices.ContainsFunc(p.needs, func(n string) bool { _, ok := s.all[n]; return !ok }) {
			rest = append(rest, p)
		} else {
			ready = append(ready, p)
		}
	}
	return ready, rest
}

func (s *Set) openAll(ctx context.Context, plans []planned, d Deps) error {
	opened, failures := make([]member, len(plans)), make([]error, len(plans))
	var group sync.WaitGroup
	for i, p := range plans {
		group.Go(func() { opened[i], failures[i] = s.openOne(ctx, p, d) })
	}
	group.Wait()
	for _, m := range opened {
		if m.guard != nil {
			s.all[m.spec.Name] = m
			s.order = append(s.order, m.spec.Name)
		}
	}
	for i, err := range failures {
		failures[i] = withRemedy(err)
	}
	return errors.Join(failures...)
}

// withRemedy puts the hint of a source's error into its text: at a start nobody else shows it.
func withRemedy(err error) error {
	if e, ok := errors.AsType[*entropy.Error](err); ok && e.Hint != "" {
		return fmt.Errorf("%w (%s)", err, e.Hint)
	}
	return err
}

// claimer is a source that knows what its raw bytes hold at least, in bits per byte. The option claimed_entropy goes before it.
type claimer interface{ ClaimedEntropy() float64 }

func (s *Set) openOne(ctx context.Context, p planned, d Deps) (member, error) {
	limited, cancel := context.WithTimeout(ctx, d.StartTimeout+p.opening)
	defer cancel()
	src, err := p.kind.Open(limited, p.spec.Name, p.options, d)
	if err != nil {
		return member{}, named(p.spec.Name, err)
	}
	if c, ok := src.(claimer); ok && !p.claimed {
		p.guard.ClaimedEntropy = c.ClaimedEntropy()
	}
	deps := guard.Deps{Events: d.Events}
	if p.spec.Fallback != "" {
		deps.Fallback = s.all[p.spec.Fallback].src
	}
	g, err := guard.New(p.spec.Name, src, p.guard, deps)
	if err != nil {
		return member{}, errors.Join(err, closeSource(src))
	}
	m := member{p.spec, g, g.Source()}
	if err := g.Start(limited); err != nil {
		return m, err
	}
	return m, g.Baseline(ctx)
}

// Get returns the guarded source of that name. It has the optional powers (entropy.Numberer, entropy.Ahead) of what it guards.
func (s *Set) Get(name string) (entropy.Source, error) {
	if m, ok := s.all[name]; ok {
		return m.src, nil
	}
	return nil, s.unknown(name)
}

// Guard returns the guard of that name, for its state, calibration and tests.
func (s *Set) Guard(name string) (*guard.Guard, error) {
	if m, ok := s.all[name]; ok {
		return m.guard, nil
	}
	return nil, s.unknown(name)
}

func (s *Set) unknown(name string) error {
	names := s.Names()
	if like := nearest(name, names); like != "" {
		return fmt.Errorf("%w %q: did you mean %s?", ErrUnknownSource, name, like)
	}
	return fmt.Errorf("%w %q: want one of %s", ErrUnknownSource, name, strings.Join(names, ", "))
}

// Names lists the sources in alphabetical order.
func (s *Set) Names() []string {
	names := slices.Clone(s.order)
	slices.Sort(names)
	return names
}

// Spec returns what the source of that name was opened from.
func (s *Set) Spec(name string) (Spec, bool) {
	m, ok := s.all[name]
	return m.spec, ok
}

// States are snapshots of all sources in the order of Names.
func (s *Set) States() []guard.State {
	var out []guard.State
	for _, name := range s.Names() {
		out = append(out, s.all[name].guard.State())
	}
	return out
}

// Close closes the sources, those that need others first.
func (s *Set) Close() error {
	var all []error
	for _, name := range slices.Backward(s.order) {
		all = append(all, s.all[name].guard.Close())
	}
	return errors.Join(all...)
}

func closeSource(src entropy.Source) error {
	if c, ok := src.(interface{ Close() error }); ok {
		return c.Close()
	}
	return nil
}

// named makes sure that the error tells its source.
func named(name string, err error) error {
	if _, ok := errors.AsType[*entropy.Error](err); ok {
		return err
	}
	return &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "open", Err: err}
}
