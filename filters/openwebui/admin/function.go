package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Function is a filter as Open WebUI has it, and as the file to import has it.
type Function struct {
	ID      string       `json:"id"`
	Name    string       `json:"name"`
	Content string       `json:"content"`
	Meta    FunctionMeta `json:"meta"`
	Type    string       `json:"type"` // filter, unless the id is somebody else's
	Active  bool         `json:"is_active"`
	Global  bool         `json:"is_global"`
}

// FunctionMeta is what is shown of a function.
type FunctionMeta struct {
	Description string         `json:"description"`
	Manifest    map[string]any `json:"manifest"` // the head of the content; Open WebUI reads it anew
}

// version is that of the content.
func (f *Function) version() string {
	v, _ := f.Meta.Manifest["version"].(string)
	return v
}

// same reports whether installing g over f would change nothing.
func (f *Function) same(g *Function) bool {
	return f.Name == g.Name && f.Content == g.Content && f.Meta.Description == g.Meta.Description
}

// ParseFunction reads the file to import: a list of one function.
func ParseFunction(file []byte) (Function, error) {
	var all []Function
	if err := json.Unmarshal(file, &all); err != nil {
		return Function{}, fmt.Errorf("read the filter's file: %w", err)
	}
	if len(all) != 1 || all[0].ID == "" || all[0].Content == "" {
		return Function{}, fmt.Errorf("read the filter's file: it has %d functions with id and content, want one", len(all))
	}
	return all[0], nil
}

// function reads one, with its switches. A missing one is no error. Open WebUI answers 401 for it, which is no other refusal once [Client.Account]
// has checked the token.
func (c *Client) function(ctx context.Context, id string) (f Function, found bool, err error) {
	err = c.get(ctx, functionPath(id, ""), &f)
	if code := status(err); code == http.StatusUnauthorized || code == http.StatusNotFound {
		return Function{}, false, nil
	}
	return f, err == nil, err
}

func functionPath(id, end string) string { return "/api/v1/functions/id/" + url.PathEscape(id) + end }

// form is what creating and updating read; a function lands switched off whatever it says.
func (f *Function) form() map[string]any {
	return map[string]any{"id": f.ID, "name": f.Name, "content": f.Content, "meta": map[string]any{
		"description": f.Meta.Description, "manifest": f.Meta.Manifest,
	}}
}

func (c *Client) createFunction(ctx context.Context, f *Function) error {
	return c.codeRefused(c.post(ctx, "/api/v1/functions/create", f.form(), nil), "create")
}

func (c *Client) updateFunction(ctx context.Context, f *Function) error {
	return c.codeRefused(c.post(ctx, functionPath(f.ID, "/update"), f.form(), nil), "update")
}

// codeRefused says what to do about a refusal of the code: Open WebUI runs it at once.
func (c *Client) codeRefused(err error, verb string) error {
	if status(err) != http.StatusBadRequest {
		return err
	}
	said := reason(err)
	e := &Error{Message: fmt.Sprintf("Open WebUI can't %s the filter: %s", verb, said), Status: http.StatusBadRequest, Err: err}
	switch lower := strings.ToLower(said); {
	case strings.Contains(lower, "valves"):
		e.Message = "the valves stored in Open WebUI don't fit this version of the filter: " + said
		e.Hint = "run it again with --reset-valves, which forgets them, and set those you need with --valve"
	case strings.Contains(lower, "taken"):
		e.Hint = "another installation was quicker; run it again"
	default:
		e.Hint = "the log of Open WebUI has the whole error; see there too that functions are on (ENABLE_PLUGINS, ENABLE_FUNCTIONS)"
	}
	return e
}

const offHint = "start Open WebUI with ENABLE_PLUGINS and ENABLE_FUNCTIONS on (they are unless switched off) and without SAFE_MODE"

func (c *Client) off() error {
	return &Error{Message: "functions are switched off in Open WebUI at " + c.base.String(), Hint: offHint}
}

// functionsOn finds out whether functions run at all. Open WebUI tells people who signed in; to an API key only a list without a function that
// is there says that they don't.
func (c *Client) functionsOn(ctx context.Context, id string, there bool) error {
	said := struct {
		Features struct {
			Plugins   *bool `json:"enable_plugins"`
			Functions *bool `json:"enable_functions"` // as from 0.12
		} `json:"features"`
	}{}
	if err := c.get(ctx, "/api/config", &said); err != nil && status(err) != http.StatusUnauthorized {
		return err
	}
	for _, on := range []*bool{said.Features.Plugins, said.Features.Functions} {
		if on != nil && !*on {
			return c.off()
		}
	}
	if !there || said.Features.Plugins != nil {
		return nil
	}
	return c.functionListed(ctx, id)
}

func (c *Client) functionListed(ctx context.Context, id string) error {
	var all []Function
	if err := c.get(ctx, "/api/v1/functions/list", &all); err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(f Function) bool { return f.ID == id }) {
		return c.off()
	}
	return nil
}

// flip turns a switch over. Open WebUI has no call that sets one: what it was has to be known.
func (c *Client) flip(ctx context.Context, id, which string) error {
	return c.post(ctx, functionPath(id, which), struct{}{}, nil)
}

const (
	switchActive = "/toggle"
	switchGlobal = "/toggle/global"
)

func (c *Client) deleteFunction(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, functionPath(id, "/delete"), nil, nil)
}

// valves are the administrator's, as stored: only those that were set.
func (c *Client) valves(ctx context.Context, id string) (Valves, error) {
	var v Valves
	err := c.get(ctx, functionPath(id, "/valves"), &v)
	return v, err
}

// setValves replaces all of them and returns what was stored.
func (c *Client) setValves(ctx context.Context, id string, v Valves) (Valves, error) {
	if v == nil {
		v = Valves{} // null is not taken
	}
	var stored Valves
	err := c.post(ctx, functionPath(id, "/valves/update"), v, &stored)
	if status(err) == http.StatusBadRequest {
		err = &Error{
			Message: "Open WebUI refused the valves: " + reason(err),
			Hint:    "mend those in question with --valve KEY=VALUE, or forget all that are stored with --reset-valves", Status: http.StatusBadRequest, Err: err,
		}
	}
	return stored, err
}
