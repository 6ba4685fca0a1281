package admin

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func wantError(t *testing.T, err error, message, hint string) {
	t.Helper()
	var e *Error
	switch {
	case !errors.As(err, &e):
		t.Fatalf("error is %v, want an *Error", err)
	case !strings.Contains(e.Message, message):
		t.Errorf("message is %q, want %q in it", e.Message, message)
	case !strings.Contains(e.Hint, hint) || e.Hint == "":
		t.Errorf("hint is %q, want %q in it", e.Hint, hint)
	}
	if strings.Contains(e.Message+e.Hint, adminToken) {
		t.Errorf("the error shows the token: %q %q", e.Message, e.Hint)
	}
}

func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"http://127.0.0.1:3000": "http://127.0.0.1:3000", "http://127.0.0.1:3000/": "http://127.0.0.1:3000", "http://h/api": "http://h",
		"https://h/api/v1/": "https://h", "https://h/chat//": "https://h/chat", "\thttp://h:1/?q=1#x": "http://h:1",
	} {
		c, err := New(Options{URL: text})
		if err != nil || c.URL() != want {
			t.Errorf("New(%q): %v %v, want %s", text, c, err, want)
		}
	}
	for text, message := range map[string]string{
		"": "no http:// or https:// address", "127.0.0.1:3000": "no http://", "localhost:3000": "no http://", "ftp://h": "no http://", "http://": "no http://",
		"http://me:secret@h": "name or password in it",
	} {
		_, err := New(Options{URL: text})
		wantError(t, err, message, "")
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
	_, err := New(Options{URL: "http://h", Token: "two\nlines"})
	wantError(t, err, "characters that no token", "one line")
}

// TestOtherAnswers is about servers that are not what they should be, or not now.
func TestOtherAnswers(t *testing.T) {
	html := func(w http.ResponseWriter, status int) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, _ = w.Write([]byte("<!DOCTYPE html><html>Please log in</html>"))
	}
	for name, c := range map[string]struct {
		handle        func(http.ResponseWriter, *http.Request)
		message, hint string
	}{
		"a page":      {func(w http.ResponseWriter, _ *http.Request) { html(w, 200) }, "with a web page (status 200)", "login page of a proxy"},
		"a page, 502": {func(w http.ResponseWriter, _ *http.Request) { html(w, 502) }, "with a web page (status 502)", "--url"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://sso.example.org/login?next=x", http.StatusFound)
		}, "to https://sso.example.org/login", "ends at"},
		"bad redirect": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusFound) }, "sends GET /api/version elsewhere", "ends at"},
		"text":         {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }, "something that is not JSON", "--url"},
		"nothing":      {func(http.ResponseWriter, *http.Request) {}, "something that is not JSON", "--url"},
		"a gateway":    {func(w http.ResponseWriter, _ *http.Request) { answer(w, refusal{404, "no such path"}) }, "is not Open WebUI", "not that of a gateway"},
		"other JSON":   {func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]any{"hello": 1}) }, "is not Open WebUI", "not that of a gateway"},
		"other form":   {func(w http.ResponseWriter, _ *http.Request) { answer(w, []int{1}) }, "JSON of another form", "newer"},
		"an old one":   {func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]any{"version": "0.6.34"}) }, "is Open WebUI 0.6.34, and the filter needs 0.10.0", "update"},
		"fails":        {func(w http.ResponseWriter, _ *http.Request) { answer(w, refusal{500, "database is locked"}) }, "status 500: database is locked", "log"},
		"too many":     {func(w http.ResponseWriter, _ *http.Request) { answer(w, refusal{429, "slow down"}) }, "", ""},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "99")
			_, _ = w.Write([]byte("{"))
		}, "reach Open WebUI", "--url"},
		"hangs up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "reach Open WebUI", "runs"},
		"lists for 422": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"detail":[{"loc":["a"]}]}`))
		}, `[{"loc":["a"]}]`, "log"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(c.handle))
			defer s.Close()
			_, err := client(t, s.URL, adminToken).Version(t.Context())
			wantError(t, err, c.message, c.hint)
		})
	}
}

func TestVersionGoesWithoutTheToken(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token was sent before it was known to whom")
		}
		answer(w, map[string]any{"version": "0.12.4"})
	}))
	defer s.Close()
	if v, err := client(t, s.URL, adminToken).Version(t.Context()); err != nil || v != "0.12.4" {
		t.Errorf("%q %v", v, err)
	}
}

func TestDownAndSlow(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	c, err := New(Options{URL: s.URL, Timeout: 30 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Version(t.Context())
	wantError(t, err, "did not answer GET /api/version within 30ms", "--timeout")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = c.Version(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller left: %v", err)
	}
	s.Close()
	c.Close()
	_, err = client(t, s.URL, "").Version(t.Context())
	wantError(t, err, "connection refused", "runs")
}

func TestTokens(t *testing.T) {
	expired := "x." + base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1700000000}`)) + ".y"
	w, c := newWebUI(t)
	if a, err := c.Account(t.Context()); err != nil || a.Name != "Ada" {
		t.Errorf("%v %v", a, err)
	}
	for token, message := range map[string]string{"": "refused the token", "other": "refused the token: Your session has expired", "a.b.c": "refused the token", expired: "the token expired on 2023-11-14 22:13 UTC"} {
		_, err := client(t, c.URL(), token).Account(t.Context())
		wantError(t, err, message, "Settings > Account")
	}
	w.answerWith("GET /api/v1/auths/", func(res http.ResponseWriter) { answer(res, map[string]any{"name": "Bob", "role": "user"}) })
	_, err := c.Account(t.Context())
	wantError(t, err, `Bob has the role "user"`, "administrator")

	w.answerWith("GET /api/v1/auths/", func(res http.ResponseWriter) { answer(res, refusal{403, "A human session is required."}) })
	if a, err := c.Account(t.Context()); err != nil || a.Name != "an API key" {
		t.Errorf("an API key: %v %v", a, err)
	}
	w.answerWith("GET /api/v1/functions/list", func(res http.ResponseWriter) { answer(res, refusal{401, "You do not have permission"}) })
	_, err = c.Account(t.Context())
	wantError(t, err, "refused the token: You do not have permission", "administrator")
}

func TestSignIn(t *testing.T) {
	w, c := newWebUI(t)
	const call = "POST /api/v1/auths/signin"
	in := client(t, c.URL(), "")
	w.answerWith(call, func(res http.ResponseWriter) { answer(res, map[string]any{"token": adminToken}) })
	if err := in.SignIn(t.Context(), "a@b", "secret"); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Account(t.Context()); err != nil {
		t.Error(err)
	}
	w.answerWith(call, func(res http.ResponseWriter) {
		answer(res, refusal{400, "The email or password provided is incorrect."})
	})
	err := in.SignIn(t.Context(), "a@b", "secret")
	wantError(t, err, "refused to sign a@b in: The email or password provided is incorrect.", "--password")
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error shows the password: %v", err)
	}
	w.answerWith(call, func(res http.ResponseWriter) { answer(res, refusal{429, "slow down"}) })
	wantError(t, in.SignIn(t.Context(), "a@b", "secret"), "status 429", "wait")
	w.answerWith(call, func(res http.ResponseWriter) { answer(res, map[string]any{}) })
	wantError(t, in.SignIn(t.Context(), "a@b", "secret"), "without a token", "--token")
}
