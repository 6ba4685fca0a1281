package gateway

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"qr-gateway/backends"
	"qr-gateway/configs/presets"
	"qr-gateway/gateway/api"
	"qr-gateway/sampler"
	"qr-gateway/sampler/param"
)

type list[T any] struct {
	Object string `json:"object"`
	Data   []T    `json:"data"`
}

type model struct {
	ID      string     `json:"id"`
	Object  string     `json:"object"`
	Created int64      `json:"created"` // Unix seconds: when the server started
	OwnedBy string     `json:"owned_by"`
	Name    string     `json:"name"`
	QR      modelState `json:"qr"`
	Info    *webInfo   `json:"info,omitempty"`
}

// modelState is what OpenAI's format has no place for.
type modelState struct {
	Ready        bool   `json:"ready"`
	State        string `json:"state"`
	Reason       string `json:"reason,omitempty"`
	Context      int    `json:"context"` // tokens a request may use, prompt and answer together
	Workers      int    `json:"workers"`
	Busy         int    `json:"busy"`
	Description  string `json:"description,omitempty"`
	Backend      string `json:"backend"`
	Architecture string `json:"architecture,omitempty"`
	Memory       string `json:"memory,omitempty"`
	Vocabulary   int    `json:"vocabulary,omitempty"`
	Chat         bool   `json:"chat"`
	SizeBytes    int64  `json:"size_bytes,omitempty"`
	Raw          bool   `json:"raw,omitempty"`       // requests are passed on to another server as they are
	Parameters   bool   `json:"parameters"`          // qr_ parameters are taken
	Unsampled    string `json:"unsampled,omitempty"` // why tokens can't be chosen by them now

	Aliases  []string       `json:"aliases,omitempty"`  // other ids that a request may name the model by
	Replicas []replicaState `json:"replicas,omitempty"` // of a model that has several
}

// replicaState is one of several backends of a model.
type replicaState struct {
	Name     string `json:"name"`
	Backend  string `json:"backend"`
	Ready    bool   `json:"ready"`
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"`
	InFlight int    `json:"in_flight"`
	Workers  int    `json:"workers"`

	Unsampled string `json:"unsampled,omitempty"`
}

func (s *Server) entry(i backends.Info) model {
	card := s.deps.Cards[i.Model]
	m := model{
		ID: i.Model, Object: "model", Created: s.started.Unix(), OwnedBy: "qr-gateway", Name: cmp.Or(card.Name, i.Model),
		QR: modelState{
			Ready: i.Ready, State: i.State, Reason: i.Reason, Context: i.Context, Workers: i.Workers, Busy: i.Busy,
			Description: i.Description, Backend: i.Backend, Architecture: i.Architecture, Memory: i.Memory,
			Vocabulary: i.Vocabulary, Chat: i.Chat, SizeBytes: i.SizeBytes,
			Aliases: card.Aliases, Raw: i.Raw, Parameters: !i.Raw || i.PassParams || i.Samples,
			Unsampled: i.Unsampled,
		},
	}
	for _, r := range i.Replicas {
		m.QR.Replicas = append(m.QR.Replicas, replicaState(r))
	}
	if s.cfg.ModelInfo {
		m.Info = describeForWeb(i, card)
	}
	return m
}

func (s *Server) listModels(c *gin.Context) {
	out := list[model]{Object: "list", Data: []model{}}
	for _, i := range s.deps.Models.List() {
		m := s.entry(i)
		out.Data = append(out.Data, m)
		if s.cfg.TaskAliases {
			out.Data = append(out.Data, taskModel(m))
		}
	}
	s.reply(c, http.StatusOK, out)
}

func (s *Server) getModel(c *gin.Context) {
	named := s.canonical(strings.TrimPrefix(c.Param("id"), "/"))
	id, alias := api.BaseModel(named)
	infos := s.deps.Models.List()
	find := func(id string) int {
		return slices.IndexFunc(infos, func(i backends.Info) bool { return i.Model == id })
	}
	if at := find(named); at >= 0 {
		s.reply(c, http.StatusOK, s.entry(infos[at]))
		return
	}
	at := find(id)
	if !alias || at < 0 {
		s.fail(c, s.unknownModel(named))
		return
	}
	s.reply(c, http.StatusOK, taskModel(s.entry(infos[at])))
}

func (s *Server) unknownModel(id string) *api.Error {
	var served []string
	for _, i := range s.deps.Models.List() {
		served = append(served, i.Model)
	}
	return api.UnknownModel(id, served)
}

// healthz says that the process lives, whatever its engines do.
func (s *Server) healthz(c *gin.Context) {
	s.reply(c, http.StatusOK, gin.H{"status": "ok", "version": s.cfg.Version})
}

type readiness struct {
	Status string       `json:"status"`
	Models []modelReady `json:"models"`
}

type modelReady struct {
	ID     string `json:"id"`
	Ready  bool   `json:"ready"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// readyz says whether a request sent now could be served by one model at least.
func (s *Server) readyz(c *gin.Context) {
	status := http.StatusServiceUnavailable
	out := readiness{Status: "not ready", Models: []modelReady{}}
	for _, i := range s.deps.Models.List() {
		out.Models = append(out.Models, modelReady{ID: i.Model, Ready: i.Ready, State: i.State, Reason: i.Reason})
		if i.Ready {
			status, out.Status = http.StatusOK, "ready"
		}
	}
	if s.draining.Load() {
		status, out.Status = http.StatusServiceUnavailable, "draining"
	}
	s.reply(c, status, out)
}

// parameters shows the table that requests are checked against.
func (s *Server) parameters(c *gin.Context) {
	out := list[param.Description]{Object: "list", Data: []param.Description{}}
	for _, f := range sampler.Fields() {
		out.Data = append(out.Data, f.Describe())
	}
	s.reply(c, http.StatusOK, out)
}

// presets shows the sets of parameters that a request may name.
func (s *Server) presets(c *gin.Context) {
	all := s.deps.Presets.All()
	if all == nil {
		all = []presets.Preset{}
	}
	s.reply(c, http.StatusOK, list[presets.Preset]{Object: "list", Data: all})
}

func (s *Server) reply(c *gin.Context, status int, v any) {
	s.bound(c)
	if err := api.WriteJSON(c.Writer, status, v); err != nil {
		recordOf(c).err = err
	}
}
