package config

import (
	"errors"
	"reflect"
	"strings"
	"time"

	"qr-gateway/backends/openai"
)

// What becomes of the qr_ parameters of requests that are passed on.
const (
	QRRefuse = "refuse" // a request with one is refused: the server doesn't know them
	QRPass   = "pass"   // they go on: the server is another qr-gateway
)

// Timeouts bound the parts of a request that is passed on.
type Timeouts struct {
	Connect   time.Duration `mapstructure:"connect"`    // until there is a connection
	FirstByte time.Duration `mapstructure:"first_byte"` // from there to the first byte of a stream
	Idle      time.Duration `mapstructure:"idle"`       // between bytes, from then on
	Total     time.Duration `mapstructure:"total"`      // of all together
}

func defaultTimeouts() Timeouts { return Timeouts(openai.DefaultConfig().Timeouts) }

// mostWorkers bounds the requests that run at once: a server elsewhere has its own bounds.
func (m Model) mostWorkers() int {
	if m.passesOn() {
		return 4096
	}
	return 64
}

// Upstream is the model as the openai backend takes it.
func (m Model) Upstream() openai.Config {
	c := openai.DefaultConfig()
	c.Model, c.Description, c.Context, c.Workers = m.ID, m.Description, m.Context, m.Workers
	c.URL, c.APIKey, c.APIKeyFile, c.UpstreamModel, c.Headers = m.URL, m.APIKey, m.APIKeyFile, m.UpstreamModel, m.Headers
	c.Timeouts, c.PassParams = openai.Timeouts(m.Timeouts), m.QR == QRPass
	return c
}

// passesOn says that another server has the model.
func (m Model) passesOn() bool {
	return m.Backend == BackendOpenAI || m.Backend == BackendVLLM || m.Backend == BackendPeek
}

// checkUpstream checks what belongs to a server that has the model.
func (m Model) checkUpstream(c *checks) {
	c.oneOf("qr", m.QR, QRRefuse, QRPass)
	if !m.passesOn() && m.URL != "" {
		c.fail("url", "is for a model with backend: %s, %s or %s; this one has %s", BackendOpenAI, BackendVLLM, BackendPeek, m.Backend)
	}
	switch m.Backend {
	case BackendOpenAI:
		c.upstream("", m.Upstream().Validate())
	case BackendVLLM:
		c.upstream("vllm.", m.OnVLLM().Validate())
	case BackendPeek:
		p := m.Peeking()
		p.Group = 1 // it has a check of its own
		c.upstream("peek.", p.Validate())
	}
}

// upstream takes in what a backend says of its configuration. Fields that are not of every server are below a key of their own.
func (c *checks) upstream(own string, err error) {
	common := keysOf(reflect.TypeFor[Model]())
	for _, err := range parts(err) {
		var e *openai.FieldError
		if !errors.As(err, &e) || e.Field == "id" { // which has a check of its own
			continue
		}
		field := e.Field
		if name, _, _ := strings.Cut(field, "."); common[name] == nil && name != "health" {
			field = own + field
		}
		c.fail(field, "%s", e.Message)
	}
}
