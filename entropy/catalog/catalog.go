// Package catalog opens the entropy sources that a configuration names. It holds the one table of source types ([Kinds]): a new type is
// a package with a Config and an Open, and one line there. Every source is put behind a guard with its policy.
//
// A [Set] never changes and is safe for concurrent use. To reload, open a new set first, put it in the old one's place, and close the
// old one when nobody draws from it any more.
package catalog

import (
	"context"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc"
	"qr-gateway/entropy/guard"
)

// Spec is one named source of a configuration.
type Spec struct {
	Name     string         `mapstructure:"name" json:"name"`
	Type     string         `mapstructure:"type" json:"type"`
	Policy   string         `mapstructure:"policy" json:"policy,omitempty"`     // strict (the default), fallback or observe
	Fallback string         `mapstructure:"fallback" json:"fallback,omitempty"` // the name of the second source
	Options  map[string]any `mapstructure:"options" json:"options,omitempty"`   // of the type, and those of guard.Config
}

// Deps are what sources work with. The zero value is usable.
type Deps struct {
	// Events hears of the transitions of all sources, or is nil.
	Events guard.Events
	// Requests hears of each request to a gRPC server and of its breaker, or is nil.
	Requests grpc.Observer
	// StartTimeout bounds the opening, probe and start-up test of each source; 0 is 10 s. What a type gives its opening comes on top, and
	// a calibration at start is not counted.
	StartTimeout time.Duration

	// lookup finds a source that was opened before; only types that are made of others use it.
	lookup func(name string) (entropy.Source, error)
}

// Kind is a type of source.
type Kind struct {
	Type    string
	Aliases []string
	Help    string
	Class   entropy.Class // what its blocks are, unless the source finds out better
	Options func() any    // a pointer to the defaults
	Open    func(ctx context.Context, name string, opts map[string]any, d Deps) (entropy.Source, error)
	// Members are the sources that this one is made of; they are opened before it. Nil: none.
	Members func(opts map[string]any) ([]string, error)
}

// kind makes a line of the table: options are decoded over the defaults, and unknown ones refused.
func kind[C any](line Kind, defaults func() C, open func(context.Context, string, C, Deps) (entropy.Source, error)) Kind {
	line.Options = func() any { c := defaults(); return &c }
	line.Open = func(ctx context.Context, name string, opts map[string]any, d Deps) (entropy.Source, error) {
		cfg := defaults()
		if err := decode(opts, &cfg); err != nil {
			return nil, &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "read options of type " + line.Type, Err: err}
		}
		return open(ctx, name, cfg, d)
	}
	return line
}

// Find returns the kind of that type or alias.
func Find(typ string) (Kind, bool) {
	for _, k := range Kinds() {
		if k.Type == typ {
			return k, true
		}
		for _, a := range k.Aliases {
			if a == typ {
				return k, true
			}
		}
	}
	return Kind{}, false
}

// Types lists the names of the types in the order of the table.
func Types() []string {
	var out []string
	for _, k := range Kinds() {
		out = append(out, k.Type)
	}
	return out
}
