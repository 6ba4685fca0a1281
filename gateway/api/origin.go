package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Keys of ours that say who asks and what for. They are no parameters: the table doesn't have them.
const (
	clientKey = "qr_client"
	taskKey   = "qr_task"
)

// NoTask is the value of qr_task for a request that is no task, whatever it looks like.
const NoTask = "none"

// Headers in which Open WebUI says what a request belongs to, where its connection is set up to.
const (
	taskHeader    = "X-OpenWebUI-Task"
	chatHeader    = "X-OpenWebUI-Chat-Id"
	messageHeader = "X-OpenWebUI-Message-Id"
)

// taskAlias behind a model's id asks for the lane of tasks.
const taskAlias = ":task"

// Names of tasks that nobody named.
const (
	aliasedTask = "alias"   // the model's id asks for it
	guessedTask = "guessed" // it looks like one
)

// maxOrigin bounds what is kept of each part of an Origin, in bytes.
const maxOrigin = 128

// Origin is who sent a request and what it belongs to. All of it is the client's word: it is shown, logged, and may make a request cheaper,
// nothing else.
type Origin struct {
	Client    string // qr_client, e.g. open-webui-filter/1.0.0
	Task      string // what a client's own call is for, e.g. title_generation; empty for what a person asked
	ChatID    string
	MessageID string
}

// BaseModel is the id of the model that serves id, which may be an alias for the lane of tasks.
func BaseModel(id string) (base string, task bool) { return strings.CutSuffix(id, taskAlias) }

// TaskModel is the alias of a model for the lane of tasks.
func TaskModel(id string) string { return id + taskAlias }

// Origin reads where the request comes from.
func (b *Body) Origin(h http.Header) (Origin, error) {
	o := Origin{ChatID: headerText(h, chatHeader), MessageID: headerText(h, messageHeader)}
	var err error
	if o.Client, err = b.fields.mark(clientKey, maxOrigin); err != nil {
		return o, err
	}
	named, err := b.fields.mark(taskKey, maxOrigin/2)
	if err != nil {
		return o, err
	}
	o.Task = b.task(named, headerText(h, taskHeader), o.Client)
	return o, nil
}

// task decides what a call is for by the surest sign there is.
func (b *Body) task(named, header, client string) string {
	switch {
	case named == NoTask:
		return ""
	case named != "":
		return named
	case header != "":
		return header
	case b.aliased():
		return aliasedTask
	case client == "" && b.fields.looksLikeTask():
		return guessedTask
	}
	return ""
}

func (b *Body) aliased() bool {
	id, err := b.Model()
	_, alias := BaseModel(id)
	return err == nil && alias
}

// looksLikeTask knows the default templates of Open WebUI, which is all there is to go by where its connection sends no header.
func (o object) looksLikeTask() bool {
	if stream, _, err := o.boolean("stream"); err != nil || stream {
		return false
	}
	items, _, err := o.list("messages")
	if err != nil || len(items) != 1 {
		return false
	}
	var m struct{ Role, Content string }
	return json.Unmarshal(items[0], &m) == nil && m.Role == "user" && strings.HasPrefix(m.Content, "### Task:")
}

// mark reads one of our keys that are no parameters, from wherever parameters may stand.
func (o object) mark(key string, limit int) (string, error) {
	from := []object{o}
	for _, nest := range nests {
		inner, _, err := o.object(nest)
		if err != nil {
			return "", err
		}
		from = append(from, inner)
	}
	for _, fields := range from {
		text, ok, err := fields.text(key)
		if err != nil || ok && !shortText(text, limit) {
			return "", Invalid(key, "%s must be text of at most %d bytes without control characters", key, limit)
		}
		if text != "" {
			return text, nil
		}
	}
	return "", nil
}

func shortText(s string, limit int) bool {
	return len(s) <= limit && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// headerText is a header's value, or nothing where it is too long to be one of those expected, or a template such as {{TASK}} that the client
// doesn't know and left as it stands: else each of its chats would be a task.
func headerText(h http.Header, name string) string {
	v := strings.TrimSpace(h.Get(name))
	if !shortText(v, maxOrigin) || strings.HasPrefix(v, "{{") {
		return ""
	}
	return v
}
