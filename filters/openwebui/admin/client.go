// Package admin talks to Open WebUI's admin API: it installs the filter, sets its valves, and writes the cards of the models that a
// gateway serves. Every step reads before it writes, so that a second run mends what a first one left half done, and else changes nothing.
package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// bodyLimit is what an answer may have at most; the longest are lists of models, each with its card.
const bodyLimit = 64 << 20

// Options say where Open WebUI is and who asks.
type Options struct {
	URL     string        // address of the page, e.g. http://127.0.0.1:3000
	Token   string        // of an administrator; empty: SignIn gets one
	Timeout time.Duration // for each call; 0 is 30 s
}

// Client calls one Open WebUI as one person.
type Client struct {
	base    *url.URL
	token   string
	timeout time.Duration
	http    *http.Client
}

// New makes a client and checks what can be checked without a call.
func New(o Options) (*Client, error) {
	base, err := address(o.URL)
	if err != nil {
		return nil, err
	}
	token := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(o.Token), "Bearer "))
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, &Error{Message: "the token has characters that no token of Open WebUI has", Hint: "copy it again, as one line"}
	}
	return &Client{
		base: base, token: token, timeout: cmp.Or(o.Timeout, 30*time.Second),
		// A login page of a proxy begins with a redirect, and a POST that follows one becomes a GET: so none is followed.
		http: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil
}

// URL is the address of the page, as it is used.
func (c *Client) URL() string { return c.base.String() }

// Close ends connections that wait for a next call.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// address reads the page's address; what people copy with it, a slash or the path of the API, is taken off.
func address(text string) (*url.URL, error) {
	const hint = "give the address that the browser shows for Open WebUI, e.g. http://127.0.0.1:3000"
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, &Error{Message: fmt.Sprintf("%q is no http:// or https:// address", text), Hint: hint}
	case u.User != nil:
		return nil, &Error{Message: "the address has a name or password in it", Hint: "use --token, or --email and --password"}
	}
	path := strings.TrimRight(u.Path, "/")
	for _, end := range []string{"/v1", "/api"} {
		path = strings.TrimRight(strings.TrimSuffix(path, end), "/")
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: path}, nil
}

// get reads path into out.
func (c *Client) get(ctx context.Context, path string, out any) error {
	return c.call(ctx, http.MethodGet, path, nil, out)
}

// post sends in to path and reads the answer into out, unless that is nil.
func (c *Client) post(ctx context.Context, path string, in, out any) error {
	return c.call(ctx, http.MethodPost, path, in, out)
}

// call does one call. Every failure but an end of ctx is an *[Error] that says what to do.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	req, err := c.request(limited, method, path, in)
	if err != nil {
		return fmt.Errorf("build %s %s: %w", method, path, err)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.unreached(ctx, req, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, bodyLimit+1))
	if err != nil {
		return c.unreached(ctx, req, err)
	}
	if err := c.refused(req, res, body); err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return &Error{
			Message: fmt.Sprintf("%s answered %s with JSON of another form: %v", c.base, what(req), err),
			Hint:    "this version of Open WebUI may be newer than this program; see docs/open-webui.md for those that were tried", Err: err,
		}
	}
	return nil
}

func (c *Client) request(ctx context.Context, method, path string, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}
