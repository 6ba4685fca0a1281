package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// Error is a failure with its remedy.
type Error struct {
	Message string // one sentence that names the thing
	Hint    string // the remedy, or empty
	Status  int    // of Open WebUI's answer, or 0
	Err     error  // cause, or nil

	detail string // what Open WebUI said itself
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Err }

// status is the status that Open WebUI refused a call with, or 0.
func status(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// reason is what Open WebUI said when it refused.
func reason(err error) string {
	var e *Error
	if errors.As(err, &e) && e.detail != "" {
		return e.detail
	}
	return err.Error()
}

// what names a call. The query is left out: it says no more than the id that the sentence has anyway.
func what(req *http.Request) string { return req.Method + " " + req.URL.Path }

// unreached is the error of a call that got no whole answer.
func (c *Client) unreached(ctx context.Context, req *http.Request, err error) error {
	if ctx.Err() != nil {
		return ctx.Err() // the caller left
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return &Error{
			Message: fmt.Sprintf("%s did not answer %s within %s", c.base, what(req), c.timeout),
			Hint:    "see whether it is still starting or a connection of its is down; --timeout waits longer", Err: err,
		}
	}
	if cause := errors.Unwrap(err); cause != nil {
		err = cause // what happened, without method and address once more
	}
	return &Error{
		Message: fmt.Sprintf("reach Open WebUI at %s for %s: %v", c.base, what(req), err),
		Hint:    "see that it runs and that --url is its address; whatever was done so far stays, a second run does the rest", Err: err,
	}
}

// refused is the error of an answer that is none: a redirect, a page instead of JSON, a status from 400.
func (c *Client) refused(req *http.Request, res *http.Response, body []byte) error {
	switch {
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return c.redirected(req, res)
	case len(body) > bodyLimit:
		return &Error{Message: fmt.Sprintf("%s answered %s with more than %d bytes", c.base, what(req), bodyLimit), Status: res.StatusCode}
	case !json.Valid(body):
		return c.notJSON(req, res, body)
	case res.StatusCode < 400:
		return nil
	}
	said := detail(body)
	e := &Error{Message: fmt.Sprintf("%s refused %s with status %d: %s", c.base, what(req), res.StatusCode, said), Status: res.StatusCode, detail: said}
	switch {
	case res.StatusCode == http.StatusTooManyRequests:
		e.Hint = "wait a while and run it again"
	case res.StatusCode >= 500:
		e.Hint = "the log of Open WebUI says why; run it again when that is mended"
	}
	return e
}

func (c *Client) redirected(req *http.Request, res *http.Response) error {
	e := &Error{
		Message: fmt.Sprintf("%s sends %s elsewhere", c.base, what(req)), Status: res.StatusCode,
		Hint: "give --url the address that the browser ends at; a proxy that asks for a login of its own has to be passed by",
	}
	if to, err := res.Location(); err == nil {
		e.Message = fmt.Sprintf("%s sends %s to %s://%s%s", c.base, what(req), to.Scheme, to.Host, to.Path)
	}
	return e
}

func (c *Client) notJSON(req *http.Request, res *http.Response, body []byte) error {
	form := "something that is not JSON"
	if start := strings.ToLower(string(body[:min(len(body), 512)])); strings.Contains(start, "<html") || strings.Contains(start, "<!doctype") {
		form = "a web page"
	}
	return &Error{
		Message: fmt.Sprintf("%s answered %s with %s (status %d) where Open WebUI sends JSON", c.base, what(req), form, res.StatusCode),
		Hint:    "see that --url is Open WebUI's own address, and that no login page of a proxy stands before it", Status: res.StatusCode,
	}
}

// detail is why Open WebUI refused: a text, or for a body of the wrong form a list of what is wrong.
func detail(body []byte) string {
	var said struct {
		Detail any `json:"detail"`
	}
	if json.Unmarshal(body, &said) == nil {
		switch d := said.Detail.(type) {
		case nil:
		case string:
			return short(d)
		default:
			b, _ := json.Marshal(d) // it was JSON
			return short(string(b))
		}
	}
	return short(string(body))
}

// short is text on one line, 600 bytes of it.
func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 600 {
		return strings.ToValidUTF8(text[:597], "") + "..."
	}
	return text
}
