// Package fallback composes sources in order: each draw is served by the first that answers. Every block of a source that is not the
// first says that it is a second choice. It owns none of its members and holds no state but counters, so it is safe for concurrent use.
package fallback

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
)

// MaxSources is how many may stand in a row.
const MaxSources = 16

// Config names the members.
type Config struct {
	// Sources are the names of other sources, the preferred first: at least two, each once.
	Sources []string `mapstructure:"sources"`
}

// DefaultConfig names none.
func DefaultConfig() Config { return Config{} }

// Validate says what is wrong with the list.
func (c Config) Validate() error {
	if len(c.Sources) < 2 || len(c.Sources) > MaxSources {
		return fmt.Errorf("option sources names %d sources, want 2 to %d", len(c.Sources), MaxSources)
	}
	for i, name := range c.Sources {
		if slices.Contains(c.Sources[:i], name) {
			return fmt.Errorf("option sources names %q twice", name)
		}
	}
	return nil
}

// Source draws from its members in order.
type Source struct {
	name    string
	members []entropy.Source
}

// New composes members, which stand in the order of cfg.Sources.
func New(name string, cfg Config, members []entropy.Source) (*Source, error) {
	if err := cfg.Validate(); err != nil {
		return nil, &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "check options", Err: err}
	}
	if len(members) != len(cfg.Sources) {
		return nil, &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: fmt.Sprintf("%d members for %d names", len(members), len(cfg.Sources))}
	}
	return &Source{name, members}, nil
}

// Draw implements [entropy.Source]. When all members fail the error has every cause, and the kind of the first. The caller's own end is
// no reason to ask the next.
func (s *Source) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	var causes []error
	spent := 0
	for i, m := range s.members {
		b, err := m.Draw(ctx, buf)
		b.Discarded += spent
		if err == nil {
			b.Fallback = b.Fallback || i > 0
			return b, nil
		}
		if ctx.Err() != nil {
			return entropy.Block{}, err
		}
		spent = b.Discarded
		causes = append(causes, err)
	}
	return entropy.Block{Discarded: spent}, &entropy.Error{
		Kind: entropy.KindOf(causes[0]), Source: s.name, Message: "every source of the list failed",
		Hint: "end the list with a source that needs no network or device, such as system", Err: errors.Join(causes...),
	}
}

// Calibration implements [guard.Calibrated]: that of the first member, which is no second choice.
func (s *Source) Calibration() *guard.Calibration {
	if c, ok := s.members[0].(guard.Calibrated); ok {
		return c.Calibration()
	}
	return nil
}

// Probe implements [entropy.Prober]: what the first member that can be probed is.
func (s *Source) Probe(ctx context.Context) (entropy.Capabilities, error) {
	var causes []error
	for _, m := range s.members {
		p, ok := m.(entropy.Prober)
		if !ok {
			return entropy.Capabilities{}, nil
		}
		caps, err := p.Probe(ctx)
		if err == nil {
			caps.Number = false
			return caps, nil
		}
		causes = append(causes, err)
	}
	return entropy.Capabilities{}, errors.Join(causes...)
}
