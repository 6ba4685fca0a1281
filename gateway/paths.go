package gateway

import (
	"net/http"
	"strings"
)

// cleanPath forgives what base URLs in clients' settings get wrong: doubled slashes, one at the end, and a missing /v1.
func cleanPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path := canonical(r.URL.Path); path != r.URL.Path {
			clean := *r
			u := *r.URL
			u.Path, u.RawPath = path, ""
			clean.URL = &u
			r = &clean
		}
		next.ServeHTTP(w, r)
	})
}

func canonical(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	for _, root := range [...]string{"/chat/completions", "/completions", "/models", "/qr"} {
		if path == root || strings.HasPrefix(path, root+"/") {
			return "/v1" + path
		}
	}
	return path
}
