package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"qr-gateway/backends"
	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
	"qr-gateway/entropy/local"
	"qr-gateway/gateway/api"
	"qr-gateway/sampler"
	"qr-gateway/sampler/amplify"
)

// Sources are the entropy sources of the process. No method touches a source.
type Sources interface {
	// States describes every source as it is now, in the order of the configuration.
	States() []SourceState
	// Names are those that a request may ask for.
	Names() []string
	// Default is the name that an empty qr_entropy_source stands for.
	Default() string
	// Numbers reports whether the server of a source makes numbers itself.
	Numbers(name string) bool
	// Refusal is why a source is known to refuse every draw for now; nil where a draw has to show.
	Refusal(name string) error
}

// SourceState is one source as it is now.
type SourceState struct {
	Type     string    `json:"type"`
	Fallback string    `json:"fallback,omitempty"` // name of the second choice
	Degraded bool      `json:"degraded"`           // its last draw failed or was served by the second choice
	LastUsed string    `json:"last_used,omitempty"`
	Changed  time.Time `json:"changed,omitzero"` // when degraded last changed
	Breaker  string    `json:"breaker,omitempty"`
	guard.State
	Baseline *guard.Calibration `json:"-"`
}

// systemOnly is what a server without sources of its own has: its engines draw from the operating system.
type systemOnly struct{}

func (systemOnly) States() []SourceState { return nil }
func (systemOnly) Names() []string       { return []string{local.SystemName} }
func (systemOnly) Default() string       { return local.SystemName }
func (systemOnly) Numbers(string) bool   { return false }
func (systemOnly) Refusal(string) error  { return nil }

// chooseSource puts the default in the place of an empty name, and refuses a name that is not there.
func (s *Server) chooseSource(p *sampler.Params) error {
	from := s.deps.Sources
	if p.EntropySource == "" {
		p.EntropySource = from.Default()
	}
	if names := from.Names(); !slices.Contains(names, p.EntropySource) {
		also := ""
		if p.Preset != "" {
			also = fmt.Sprintf(" (the preset is %s, which may have set it: send qr_entropy_source too)", p.Preset)
		}
		return api.Invalid("qr_entropy_source", "qr_entropy_source is %q%s; this server has %s", p.EntropySource, also, strings.Join(names, ", "))
	}
	if p.Seed != nil || p.Bypass {
		return nil // nothing is drawn from it
	}
	if p.Amplifier == amplify.NameServer && !from.Numbers(p.EntropySource) {
		return api.Invalid("qr_amplifier", "qr_amplifier is %s, but the entropy source %s has no server that makes numbers; use %s",
			p.Amplifier, p.EntropySource, amplify.Name)
	}
	return refusal(p.EntropySource, from.Refusal(p.EntropySource))
}

// refusal is a source's, as a client is told: before the answer has begun, so that a stream gets a status too.
func refusal(name string, err error) error {
	if err == nil {
		return nil
	}
	out := &backends.Error{
		Kind: backends.KindEntropy, Code: "entropy_unavailable", Param: "qr_entropy_source", Err: err,
		Message: fmt.Sprintf("the entropy source %s can't be used now: %v", name, err),
		Hint:    "try again later, or choose another source with qr_entropy_source",
	}
	if e, ok := errors.AsType[*entropy.Error](err); ok && e.Hint != "" {
		out.Hint = e.Hint
	}
	return out
}

type sourceEntry struct {
	Name    string `json:"name"`
	Default bool   `json:"default"`
	SourceState
	Calibration *calibration `json:"calibration,omitempty"` // over the hash of the state
}

type calibration struct {
	Hash       string    `json:"hash"`
	When       time.Time `json:"when"`
	Blocks     int       `json:"blocks"`
	BlockBytes int       `json:"block_bytes"`
	Mean       float64   `json:"mean"`
	MeanError  float64   `json:"mean_error"`
	Std        float64   `json:"std"`
}

// entropySources shows every source. It reads counters, and never a source.
func (s *Server) entropySources(c *gin.Context) {
	out := list[sourceEntry]{Object: "list", Data: []sourceEntry{}}
	for _, state := range s.deps.Sources.States() {
		e := sourceEntry{Name: state.Source, Default: state.Source == s.deps.Sources.Default(), SourceState: state}
		if b := state.Baseline; b != nil {
			e.Calibration = &calibration{
				Hash: b.Hash, When: b.When, Blocks: len(b.Sums), BlockBytes: b.BlockBytes, Mean: b.Mean, MeanError: b.MeanError, Std: b.Std,
			}
		}
		out.Data = append(out.Data, e)
	}
	s.reply(c, http.StatusOK, out)
}

// health is the body of /health/entropy, in the form that qr-sampler's clients read. What is not known is null.
type health struct {
	TCP           bool           `json:"tcp_ok"` // a state is known
	RPC           *bool          `json:"rpc_ok"` // null: nothing was drawn yet
	Summary       string         `json:"summary"`
	FallbackCount *uint64        `json:"fallback_count"`
	LastUsed      *string        `json:"last_source_used"`
	Primary       *string        `json:"primary_name"`
	Sampler       *healthSampler `json:"sampler"`
	UpdatedAt     *float64       `json:"updated_at"` // Unix seconds
	Age           *float64       `json:"age_s"`
	Perf          any            `json:"perf"` // never known here: engines time their tokens in their own records
}

type healthSampler struct {
	Degraded bool     `json:"currently_degraded"`
	Age      *float64 `json:"age_s"`
}

// staleAfter is the age from which a state is called stale.
const staleAfter = 900 * time.Second

// healthOf describes the default source. state is nil where there is none.
func healthOf(state *SourceState, now time.Time) health {
	if state == nil {
		return health{Summary: "no entropy source of the server has a state: its engines draw from the operating system"}
	}
	h := health{TCP: true, Primary: &state.Source, LastUsed: &state.LastUsed, FallbackCount: new(total(state.Fallbacks))}
	if state.LastUsed == "" {
		h.LastUsed = nil
	} else {
		h.RPC = new(!state.Degraded)
	}
	h.Sampler = &healthSampler{Degraded: state.Degraded}
	stale := false
	if !state.Changed.IsZero() {
		age := max(now.Sub(state.Changed), 0)
		h.UpdatedAt, h.Age = new(float64(state.Changed.UnixNano())/1e9), new(age.Seconds())
		h.Sampler.Age, stale = h.Age, age > staleAfter
	}
	h.Summary = summary(state, stale)
	return h
}

func summary(state *SourceState, stale bool) string {
	text := fmt.Sprintf("entropy source %s (%s) is in order", state.Source, state.Policy)
	switch {
	case state.LastUsed == "":
		text = fmt.Sprintf("entropy source %s (%s) has not been drawn from yet", state.Source, state.Policy)
	case state.Degraded:
		text = fmt.Sprintf("entropy source %s (%s) is degraded; last served by %s", state.Source, state.Policy, state.LastUsed)
	}
	if stale {
		text += "; stale: nothing has changed for over 15 minutes"
	}
	return text
}

func total(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// healthEntropy always answers 200: what is wrong with the source is in the body.
func (s *Server) healthEntropy(c *gin.Context) {
	var primary *SourceState
	for _, state := range s.deps.Sources.States() {
		if state.Source == s.deps.Sources.Default() {
			primary = &state
		}
	}
	s.reply(c, http.StatusOK, healthOf(primary, s.deps.Now()))
}
