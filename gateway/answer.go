package gateway

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/gin-gonic/gin"

	"qr-gateway/backends"
	"qr-gateway/gateway/api"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/sampler"
)

// Records keeps the records of answers. It is safe for concurrent use.
type Records interface {
	// Put keeps doc under id, as long as it has room; doc is the store's afterwards. It reports whether it is kept.
	Put(id string, doc []byte) bool
	// Get returns what is kept under id, which is not to be changed.
	Get(id string) ([]byte, bool)
}

const recordsPath = "/v1/qr/records/"

// answer is a request that is ready to be queued, with what its reply needs.
type answer struct {
	call   *api.Call
	job    dispatch.Job
	origin api.Origin
	head   api.Head
	base   string // address of the server as the client knows it
}

// answerRecord is what is kept of an answer. Its text is not.
type answerRecord struct {
	ID        string                `json:"id"`
	Object    string                `json:"object"`
	Created   int64                 `json:"created"`
	Model     string                `json:"model"`
	RequestID string                `json:"request_id"`
	Client    string                `json:"client,omitempty"`
	Task      string                `json:"task,omitempty"`
	ChatID    string                `json:"chat_id,omitempty"`
	MessageID string                `json:"message_id,omitempty"`
	Params    map[string]any        `json:"params"` // those that are not at the default of the table
	Reason    string                `json:"finish_reason"`
	Usage     *api.Usage            `json:"usage"`
	QR        *backends.DecodeStats `json:"qr"`
}

// keep stores the record of an answer that has ended well. Where there is no room for it the reply has no address of one. Plain tasks would
// only push out the records of what people asked, and of an answer whose tokens another server chose there is nothing to tell.
func (s *Server) keep(a *answer, requestID string, res *backends.Result) {
	if !a.chosen() || a.origin.Task != "" && s.cfg.PlainTasks {
		return
	}
	a.head.Record = s.recordURL(a)
	if s.deps.Records == nil || !s.store(a, requestID, res) {
		a.head.Record = ""
		a.head.Brief = a.head.Brief && a.call.Stream // else what the reply leaves out would be nowhere; only streams have lines
	}
}

// store reports whether the record is kept.
func (s *Server) store(a *answer, requestID string, res *backends.Result) bool {
	doc, err := json.Marshal(answerRecord{
		ID: a.head.ID, Object: "qr.record", Created: a.head.Created, Model: a.head.Model, RequestID: requestID, Client: a.origin.Client,
		Task: a.origin.Task, ChatID: a.origin.ChatID, MessageID: a.origin.MessageID, Params: settings(&a.call.Request.Params),
		Reason: res.Reason, Usage: a.head.Usage(res), QR: &res.Stats,
	})
	if err != nil {
		s.deps.Log.Error("encode record of answer", "id", a.head.ID, "error", err)
		return false
	}
	if _, kept := s.deps.Records.Get(a.head.ID); kept {
		return true // the request was sent again
	}
	return s.deps.Records.Put(a.head.ID, doc)
}

func settings(p *sampler.Params) map[string]any {
	defaults, out := sampler.Defaults(), map[string]any{}
	for _, d := range p.Differences(&defaults) {
		out[d.Key] = d.Value
	}
	return out
}

// recordURL is where a person finds the record: below the configured address of the server, else below the one that the client used.
func (s *Server) recordURL(a *answer) string {
	if a.base == "" {
		return ""
	}
	return a.base + recordsPath + url.PathEscape(a.head.ID)
}

// baseURL is this server's address as the client of r knows it; empty where it doesn't say, as those of HTTP/1.0 need not.
func (s *Server) baseURL(r *http.Request) string {
	// Each proxy on the way may have added its own; the first is the client's.
	proto, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",")
	switch {
	case s.cfg.PublicURL != "":
		return s.cfg.PublicURL
	case r.Host == "":
		return ""
	case strings.TrimSpace(proto) == "https":
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// getRecord shows the record of an answer to whoever has its id, which can't be guessed.
func (s *Server) getRecord(c *gin.Context) {
	id := c.Param("id")
	var doc []byte
	ok := false
	if s.deps.Records != nil {
		doc, ok = s.deps.Records.Get(id)
	}
	if !ok {
		s.fail(c, api.NoRecord(id))
		return
	}
	s.reply(c, http.StatusOK, json.RawMessage(doc))
}
