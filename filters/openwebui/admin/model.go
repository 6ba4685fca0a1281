package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// listed is a model as the list that chats choose from has it. OpenAI is what the connection's server said, with nothing that Open WebUI
// laid over it.
type listed struct {
	ID     string `json:"id"`
	OpenAI struct {
		Name string          `json:"name"`
		QR   json.RawMessage `json:"qr"` // only our gateways send it
		Info struct {
			Meta map[string]json.RawMessage `json:"meta"`
		} `json:"info"`
	} `json:"openai"`
}

// taskAlias ends the name that a gateway may give a model once more, for Open WebUI's own calls. Nobody chats with it, so it has no card.
const taskAlias = ":task"

// gatewayModels are those of our gateways that Open WebUI sees now, and how many models it sees in all.
func (c *Client) gatewayModels(ctx context.Context) (ours []listed, all int, err error) {
	var said struct {
		Data []json.RawMessage `json:"data"`
	}
	if err := c.get(ctx, "/api/models?refresh=true", &said); err != nil {
		return nil, 0, err
	}
	for _, raw := range said.Data {
		var m listed
		// Entries of other servers may hold anything under these names: they are not ours then.
		if json.Unmarshal(raw, &m) == nil && m.ID != "" && len(m.OpenAI.QR) > 0 && m.OpenAI.QR[0] == '{' && !strings.HasSuffix(m.ID, taskAlias) {
			ours = append(ours, m)
		}
	}
	return ours, len(said.Data), nil
}

// model is a card as Open WebUI stores it, with everything in it that is not ours.
type model struct {
	ID     string                     `json:"id"`
	Base   *string                    `json:"base_model_id"`
	Name   string                     `json:"name"`
	Meta   map[string]json.RawMessage `json:"meta"`
	Params map[string]json.RawMessage `json:"params"`
	Active bool                       `json:"is_active"`
	Grants []grant                    `json:"access_grants,omitempty"`
}

// grant lets somebody read or change a model; the principal * is every user.
type grant struct {
	Type       string `json:"principal_type"`
	ID         string `json:"principal_id"`
	Permission string `json:"permission"`
}

// everyone lets every user use a model.
func everyone() grant { return grant{Type: "user", ID: "*", Permission: "read"} }

const modelPath = "/api/v1/models/model"

// model reads a card; a missing one is no error.
func (c *Client) model(ctx context.Context, id string) (m model, found bool, err error) {
	err = c.get(ctx, modelPath+"?id="+url.QueryEscape(id), &m)
	if code := status(err); code == http.StatusNotFound || code == http.StatusUnauthorized {
		return model{}, false, nil
	}
	return m, err == nil, err
}

// baseModels are all cards of models of connections, as opposed to those that people made on them.
func (c *Client) baseModels(ctx context.Context) ([]model, error) {
	var all []model
	err := c.get(ctx, "/api/v1/models/base", &all)
	return all, err
}

func (c *Client) createModel(ctx context.Context, m *model) error {
	return c.conflict(c.post(ctx, "/api/v1/models/create", m.form(), nil))
}

func (c *Client) updateModel(ctx context.Context, m *model) error {
	return c.conflict(c.post(ctx, modelPath+"/update", m.form(), nil))
}

func (c *Client) conflict(err error) error {
	if status(err) == http.StatusConflict {
		return &Error{Message: "somebody else changed the card at the same time", Hint: "run it again", Status: http.StatusConflict, Err: err}
	}
	return err
}

// form leaves the grants out, which have a call of their own: here they would replace all there are.
func (m *model) form() model {
	out := *m
	out.Grants = nil
	return out
}

func (c *Client) deleteModel(ctx context.Context, id string) error {
	return c.post(ctx, modelPath+"/delete", map[string]string{"id": id}, nil)
}

func (c *Client) setGrants(ctx context.Context, m *model, grants []grant) error {
	if grants == nil {
		grants = []grant{}
	}
	return c.post(ctx, modelPath+"/access/update", map[string]any{"id": m.ID, "name": m.Name, "access_grants": grants}, nil)
}

// at reads the value at a path such as meta.capabilities.usage; nil where there is none, or null or an empty text.
func (m *model) at(path string) json.RawMessage {
	if path == "name" {
		if m.Name == "" || m.Name == m.ID {
			return nil // what Open WebUI itself writes where nobody named it
		}
		return encoded(m.Name)
	}
	root, rest, _ := strings.Cut(path, ".")
	from := m.Meta
	if root == "params" {
		from = m.Params
	}
	key, inner, nested := strings.Cut(rest, ".")
	value := from[key]
	if nested {
		value = object(value)[inner]
	}
	return present(value)
}

func present(value json.RawMessage) json.RawMessage {
	if v := bytes.TrimSpace(value); len(v) == 0 || string(v) == "null" || string(v) == `""` {
		return nil
	}
	return value
}

// put writes a value at a path; nil takes it away.
func (m *model) put(path string, value json.RawMessage) {
	if path == "name" {
		m.Name = m.ID
		_ = json.Unmarshal(value, &m.Name) // nil: the id stays
		return
	}
	root, rest, _ := strings.Cut(path, ".")
	into := &m.Meta
	if root == "params" {
		into = &m.Params
	}
	if *into == nil {
		*into = map[string]json.RawMessage{}
	}
	key, inner, nested := strings.Cut(rest, ".")
	if nested {
		o := object((*into)[key])
		set(o, inner, value)
		value = encoded(o)
		if len(o) == 0 && root == "meta" {
			value = nil // under params it stays: Open WebUI takes controls that are left out for unchanged
		}
	}
	set(*into, key, value)
}

func set(in map[string]json.RawMessage, key string, value json.RawMessage) {
	if value == nil {
		delete(in, key)
		return
	}
	in[key] = value
}

// object is a JSON object's members; none for anything else.
func object(raw json.RawMessage) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &out) != nil || out == nil {
		return map[string]json.RawMessage{}
	}
	return out
}

// encoded is v as JSON, of types that can't fail.
func encoded(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("encode a card: " + err.Error())
	}
	return b
}
