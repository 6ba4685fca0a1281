// Package supply has the entropy sources of a process that chooses tokens. The operating system's generator is drawn from right here; every
// other source is the gateway's, and is reached through the hub. What it opens speaks the sampler's language: [Source] is a
// [sampler.ByteSource] with the powers that the source behind it has.
//
// A [Supply] is safe for concurrent use; it starts nothing and owns nothing but what was measured of the operating system's generator.
package supply

import (
	"context"
	"fmt"
	"sync"

	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
	"qr-gateway/entropy/hub"
	"qr-gateway/entropy/local"
	"qr-gateway/sampler"
	"qr-gateway/sampler/amplify"
)

// Supply opens sources by name.
type Supply struct {
	system entropy.Source
	hub    *hub.Client // nil: there is the operating system's generator alone
	made   hub.Baselines

	mu   sync.Mutex                      // guards used
	used map[string]*amplify.Calibration // by the hash of what was measured
}

// New returns the supply of a process that reaches the gateway's sources by client, which may be nil.
func New(client *hub.Client) *Supply {
	return &Supply{system: local.NewSystem(), hub: client, used: map[string]*amplify.Calibration{}}
}

// Opened is a source as one request uses it.
type Opened struct {
	Source      sampler.ByteSource
	Name        string
	Policy      string               // strict, fallback or observe
	Calibration *amplify.Calibration // of the source's bytes, for blocks of the size asked for; nil: take them to be uniform
}

// Open finds the source of that name; empty is the operating system's generator. Where ask wants a calibration that has not been made yet,
// it is made now. A name that there is no source of is an *[entropy.Error] of kind config.
func (s *Supply) Open(ctx context.Context, name string, ask hub.Blocks) (Opened, error) {
	if name == "" || name == local.SystemName {
		return s.openSystem(ctx, ask)
	}
	if s.hub == nil {
		return Opened{}, &entropy.Error{
			Kind: entropy.KindConfig, Source: name, Message: fmt.Sprintf("no source is called %q: there is %s alone", name, local.SystemName),
		}
	}
	src, err := s.hub.Source(ctx, name)
	if err != nil {
		return Opened{}, err
	}
	d, err := s.hub.Describe(ctx, name, ask)
	if err != nil {
		return Opened{}, err
	}
	o := Opened{Source: adapt(src, d, s), Name: name, Policy: d.Policy}
	o.Calibration, err = s.calibration(name, d.Calibration)
	return o, err
}

// baseline is the frozen one of a source that serves in another's place. Nothing is measured for it; nil: there is none.
func (s *Supply) baseline(ctx context.Context, name string) (*amplify.Calibration, error) {
	d, err := s.hub.Describe(ctx, name, hub.Blocks{})
	if entropy.KindOf(err) == entropy.KindConfig {
		return nil, nil // it has no name of its own in the configuration
	}
	if err != nil {
		return nil, err
	}
	return s.calibration(name, d.Calibration)
}

func (s *Supply) openSystem(ctx context.Context, ask hub.Blocks) (Opened, error) {
	o := Opened{Source: &Source{from: s.system}, Name: local.SystemName, Policy: string(guard.Strict)}
	if ask.Count == 0 {
		return o, nil
	}
	c, err := s.made.Of(ctx, local.SystemName, s.system, ask)
	if err != nil {
		return Opened{}, err
	}
	o.Calibration, err = s.calibration(local.SystemName, c)
	return o, err
}

// calibration puts what was measured into the sampler's form, once: the same measurement serves many requests.
func (s *Supply) calibration(name string, c *guard.Calibration) (*amplify.Calibration, error) {
	if c == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if out, ok := s.used[c.Hash]; ok {
		return out, nil
	}
	means := make([]float64, len(c.Sums))
	for i, sum := range c.Sums {
		means[i] = float64(sum) / float64(c.BlockBytes)
	}
	out, err := amplify.Calibrate(c.BlockBytes, means)
	if err != nil {
		return nil, &entropy.Error{Kind: entropy.KindConfig, Source: name, Message: "use calibration", Err: err}
	}
	s.used[c.Hash] = out
	return out, nil
}

// Calibration is what the parameters of a request need to be known of its source.
func Calibration(p *sampler.Params) hub.Blocks {
	count := p.ZScoreCalibration
	switch p.Amplifier {
	case amplify.NameECDF:
		count = int(p.Number("qr_ecdf_calibration_samples"))
	case amplify.NameServer:
		count = 0
	}
	if count == 0 {
		return hub.Blocks{}
	}
	return hub.Blocks{Count: count, Bytes: p.SampleCount}
}
