package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Account is who a token belongs to.
type Account struct {
	Name string `json:"name"`
	Role string `json:"role"`
}

// oldest is the release that the filter needs at least.
const oldest = "0.10.0"

// Version asks which Open WebUI it is. It is the first call, without the token, so that none goes to something else.
func (c *Client) Version(ctx context.Context) (string, error) {
	var said struct {
		Version string `json:"version"`
	}
	anonymous := *c
	anonymous.token = ""
	err := anonymous.get(ctx, "/api/version", &said)
	if code := status(err); code >= 400 && code < 500 || err == nil && said.Version == "" {
		return "", &Error{
			Message: fmt.Sprintf("%s answers, but it is not Open WebUI", c.base),
			Hint:    "--url is the address of Open WebUI's page, not that of a gateway", Status: code, Err: err,
		}
	}
	if err == nil && older(said.Version, oldest) {
		err = &Error{Message: fmt.Sprintf("%s is Open WebUI %s, and the filter needs %s", c.base, said.Version, oldest), Hint: "update Open WebUI"}
	}
	return said.Version, err
}

// older compares two releases by their numbers; what isn't one counts as 0.
func older(a, b string) bool {
	x, y := numbers(a), numbers(b)
	for i := range x {
		if x[i] != y[i] {
			return x[i] < y[i]
		}
	}
	return false
}

func numbers(version string) (n [3]int) {
	for i, part := range strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3) {
		_, _ = fmt.Sscanf(part, "%d", &n[i]) // 0 where it has none
	}
	return n
}

// SignIn gets a token for a name and password. Where Open WebUI has no accounts both are empty.
func (c *Client) SignIn(ctx context.Context, email, password string) error {
	var said struct {
		Token string `json:"token"`
	}
	err := c.post(ctx, "/api/v1/auths/signin", map[string]string{"email": email, "password": password}, &said)
	switch code := status(err); {
	case code >= 400 && code < 500 && code != http.StatusTooManyRequests:
		return &Error{
			Message: fmt.Sprintf("%s refused to sign %s in: %s", c.base, email, reason(err)),
			Hint:    "see that --email and --password are an administrator's; where sign-in is by another service only, use --token", Status: code, Err: err,
		}
	case err == nil && said.Token == "":
		return &Error{Message: fmt.Sprintf("%s signed %s in without a token", c.base, email), Hint: "use --token"}
	}
	c.token = said.Token
	return err
}

// Accounts tells whether people have to sign in (WEBUI_AUTH).
func (c *Client) Accounts(ctx context.Context) (bool, error) {
	var said struct {
		Features struct {
			Auth bool `json:"auth"`
		} `json:"features"`
	}
	said.Features.Auth = true
	err := c.get(ctx, "/api/config", &said)
	return said.Features.Auth, err
}

// Account checks the token and that it is an administrator's. All later refusals are then about the thing that was asked for.
func (c *Client) Account(ctx context.Context) (Account, error) {
	var a Account
	err := c.get(ctx, "/api/v1/auths/", &a)
	if status(err) == http.StatusForbidden {
		// API keys may not ask for the session, but for what administrators see.
		if err = c.get(ctx, "/api/v1/functions/list", nil); err == nil {
			return Account{Name: "an API key", Role: "admin"}, nil
		}
	}
	switch code := status(err); {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return a, c.badToken(err, code)
	case err == nil && a.Role != "admin":
		return a, &Error{
			Message: fmt.Sprintf("%s has the role %q at %s, and functions are for administrators", a.Name, a.Role, c.base),
			Hint:    "use the token of an administrator",
		}
	}
	return a, err
}

func (c *Client) badToken(err error, code int) error {
	const hint = "get one in Open WebUI under Settings > Account, or use --email and --password of an administrator"
	if at, ok := expiry(c.token); ok && at.Before(time.Now()) {
		return &Error{Message: "the token expired on " + at.UTC().Format("2006-01-02 15:04 MST"), Hint: hint, Status: code, Err: err}
	}
	return &Error{Message: fmt.Sprintf("%s refused the token: %s", c.base, reason(err)), Hint: hint, Status: code, Err: err}
}

// expiry is when a session token ends. Its signature is not looked at: that it was refused is known.
func expiry(token string) (time.Time, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Exp int64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(b, &claims) != nil || claims.Exp == 0 {
		return time.Time{}, false
	}
	return time.Unix(claims.Exp, 0), true
}
