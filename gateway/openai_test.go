package gateway_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	openai "github.com/sashabaranov/go-openai"
)

// client is a client that others wrote, so that both sides can't share a misunderstanding.
func (r *rig) client() *openai.Client {
	cfg := openai.DefaultConfig("no-key")
	cfg.BaseURL = r.url + "/v1"
	cfg.HTTPClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return openai.NewClientWithConfig(cfg)
}

func chatRequest(seed int) openai.ChatCompletionRequest {
	return openai.ChatCompletionRequest{
		Model: "fake", Seed: &seed, MaxCompletionTokens: 40, Stop: []string{"never said"},
		Messages: []openai.ChatCompletionMessage{
			{Role: openai.ChatMessageRoleDeveloper, Content: "be brief"},
			{Role: openai.ChatMessageRoleUser, MultiContent: []openai.ChatMessagePart{{Type: openai.ChatMessagePartTypeText, Text: "hello"}}},
		},
	}
}

func TestOpenAIClientLists(t *testing.T) {
	r := newRig().queued(t).serve(t)
	models, err := r.client().ListModels(t.Context())
	must(t, err)
	if len(models.Models) != 1 || models.Models[0].ID != "fake" {
		t.Errorf("got %+v", models)
	}
	one, err := r.client().GetModel(t.Context(), "fake")
	must(t, err)
	if one.ID != "fake" || one.Object != "model" {
		t.Errorf("got %+v", one)
	}
}

func TestOpenAIClientChats(t *testing.T) {
	r := newRig().queued(t).serve(t)
	reply, err := r.client().CreateChatCompletion(t.Context(), chatRequest(5))
	must(t, err)
	want := reply.Choices[0].Message.Content
	if want == "" || reply.Usage.CompletionTokens == 0 || reply.Choices[0].FinishReason == "" {
		t.Fatalf("got %+v", reply)
	}
	req := chatRequest(5)
	req.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	stream, err := r.client().CreateChatCompletionStream(t.Context(), req)
	must(t, err)
	defer stream.Close()
	var got strings.Builder
	var usage *openai.Usage
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		for _, c := range part.Choices {
			got.WriteString(c.Delta.Content)
		}
		if part.Usage != nil {
			usage = part.Usage
		}
	}
	if got.String() != want {
		t.Errorf("stream said %q, the whole reply %q", got.String(), want)
	}
	if usage == nil || usage.TotalTokens != reply.Usage.TotalTokens {
		t.Errorf("usage is %+v, want %+v", usage, reply.Usage)
	}
}

func TestOpenAIClientCompletes(t *testing.T) {
	r := newRig().queued(t).serve(t)
	req := openai.CompletionRequest{Model: "fake", Prompt: "once", MaxTokens: 5}
	reply, err := r.client().CreateCompletion(t.Context(), req)
	must(t, err)
	if reply.Choices[0].Text == "" || reply.Usage.CompletionTokens != 5 || reply.Choices[0].FinishReason != "length" {
		t.Errorf("got %+v", reply)
	}
	stream, err := r.client().CreateCompletionStream(t.Context(), req)
	must(t, err)
	defer stream.Close()
	var got string
	for part, err := stream.Recv(); !errors.Is(err, io.EOF); part, err = stream.Recv() {
		must(t, err)
		got += part.Choices[0].Text
	}
	if got != reply.Choices[0].Text {
		t.Errorf("stream said %q, the whole reply %q", got, reply.Choices[0].Text)
	}
}

func TestOpenAIClientSeesErrors(t *testing.T) {
	r := newRig().queued(t).serve(t)
	for _, c := range []struct {
		name   string
		spoil  func(*openai.ChatCompletionRequest)
		status int
		code   string
	}{
		{"no messages", func(q *openai.ChatCompletionRequest) { q.Messages = nil }, 400, "invalid_value"},
		{"unknown model", func(q *openai.ChatCompletionRequest) { q.Model = "none" }, 404, "model_not_found"},
		{"penalty", func(q *openai.ChatCompletionRequest) { q.PresencePenalty = 3 }, 400, "invalid_value"},
	} {
		req := chatRequest(1)
		c.spoil(&req)
		_, err := r.client().CreateChatCompletion(context.Background(), req)
		var e *openai.APIError
		if !errors.As(err, &e) || e.HTTPStatusCode != c.status || e.Code != c.code {
			t.Errorf("%s: got %v, want %d %s", c.name, err, c.status, c.code)
		}
	}
}
