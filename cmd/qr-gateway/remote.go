package main

import (
	"qr-gateway/backends"
	"qr-gateway/gateway"
	"qr-gateway/gateway/config"
	"qr-gateway/gateway/link"
	"qr-gateway/sampler"
)

// remotes are the models of the configuration where workers host them.
type remotes struct {
	models []config.Model
	server *link.Server
}

// Backend implements gateway.Models.
func (r remotes) Backend(id string) (backends.Backend, sampler.Params, bool) {
	for _, m := range r.models {
		if m.ID == id {
			return r.server.Backend(id), m.Params, true
		}
	}
	return nil, sampler.Params{}, false
}

// List implements gateway.Models and observe.Models.
func (r remotes) List() []backends.Info {
	infos := make([]backends.Info, len(r.models))
	for i, m := range r.models {
		infos[i] = r.server.Backend(m.ID).Info()
		if infos[i].Description == "" {
			infos[i].Description = m.Description
		}
	}
	return infos
}

// declared are the entropy sources of the configuration where workers own them: a gateway opens none.
type declared struct{ cfg config.Config }

func (d declared) States() []gateway.SourceState { return nil }
func (d declared) Names() []string               { return d.cfg.SourceNames() }
func (d declared) Default() string               { return d.cfg.Entropy.Default }
func (d declared) Refusal(string) error          { return nil }

// Numbers implements gateway.Sources by what the type of a source can do at best: its server may not, which its worker then says.
func (d declared) Numbers(name string) bool {
	for _, s := range d.cfg.Entropy.Sources {
		if s.Name == name {
			return s.Type == "grpc"
		}
	}
	return false
}
