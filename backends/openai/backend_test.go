package openai

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"qr-gateway/backends"
	"qr-gateway/backends/backendtest"
)

// TestIsABackend holds the backend to what every one owes, with a server that answers in six chunks.
func TestIsABackend(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"there"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 6 {
			reason := "null"
			if i == 5 {
				reason = `"stop"`
			}
			fmt.Fprintf(w, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"there\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%d\"},\"finish_reason\":%s}]}\n\n", i, reason)
			_ = http.NewResponseController(w).Flush() // whoever left has no use for it
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	c := DefaultConfig()
	c.Model, c.UpstreamModel, c.URL, c.Workers = "here", "there", server.URL+"/v1", 3
	backendtest.Run(t, backendtest.Subject{Backend: ready(t, c), Request: func(string) *backends.Request { return request(true) }})
}
