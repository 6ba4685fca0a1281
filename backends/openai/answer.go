package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"time"
	"unicode/utf8"

	"qr-gateway/backends"
	"qr-gateway/backends/members"
)

// answer is what has come of one so far.
type answer struct {
	model   []byte            // served id, as JSON
	missing map[string][]byte // members that every reply has, as JSON, for one that lacks them
	open    map[int]bool      // choices, by their index, that have not ended
	chunks  int
	result  backends.Result
}

// newAnswer starts one to r. Whole replies and chunks differ in name.
func newAnswer(r *backends.Request, now time.Time) *answer {
	object := map[string]string{"chat/completions": "chat.completion"}[r.Path]
	switch {
	case object == "":
		object = "text_completion"
	case r.Stream:
		object += ".chunk"
	}
	return &answer{
		model: []byte(members.Quote(r.Model)), open: map[int]bool{},
		missing: map[string][]byte{
			"id": []byte(members.Quote(r.ID)), "object": []byte(members.Quote(object)), "created": strconv.AppendInt(nil, now.Unix(), 10),
		},
	}
}

// ended says that all choices have.
func (a *answer) ended() bool {
	for _, open := range a.open {
		if open {
			return false
		}
	}
	return len(a.open) > 0
}

// reply is what is read of a chunk or a whole reply.
type reply struct {
	Error   json.RawMessage
	Object  json.RawMessage
	Choices *[]struct {
		Index  int
		Reason *string `json:"finish_reason"`
	}
	Usage json.RawMessage
}

// usage counts tokens. One in another form than this is the client's to understand.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// toldError is an error that came in the place of an answer.
type toldError struct{ raw json.RawMessage }

func (e *toldError) Error() string { return "error in the place of an answer: " + short(string(e.raw)) }

// take checks a chunk or a whole reply and makes it the client's.
func (a *answer) take(raw []byte) (json.RawMessage, error) {
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\ufffd"))
	}
	var r reply
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	o, err := members.Parse(raw)
	if err != nil {
		return nil, err
	}
	switch {
	case len(r.Error) > 0 && string(r.Error) != "null":
		return nil, &toldError{r.Error}
	case r.Choices == nil && string(r.Object) == `"error"`:
		return nil, &toldError{raw}
	case r.Choices == nil:
		return nil, errors.New("it has no choices")
	}
	a.note(&r)
	return o.Edit(map[string][]byte{"model": a.model}, a.missing), nil
}

func (a *answer) note(r *reply) {
	a.chunks++
	for _, c := range *r.Choices {
		ended := c.Reason != nil && *c.Reason != ""
		_, seen := a.open[c.Index]
		a.open[c.Index] = !ended && (a.open[c.Index] || !seen)
		if ended && (c.Index == 0 || a.result.Reason == "") {
			a.result.Reason = *c.Reason
		}
	}
	var u usage
	if len(r.Usage) > 0 && string(r.Usage) != "null" && json.Unmarshal(r.Usage, &u) == nil {
		a.result.Usage = backends.Usage{PromptTokens: u.Prompt, CompletionTokens: u.Completion, CachedTokens: u.Details.Cached}
	}
}
