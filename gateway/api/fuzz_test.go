package api_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"qr-gateway/gateway/api"
	"qr-gateway/sampler"
)

// FuzzDecode holds that any bytes are either a client error or a request within every bound.
func FuzzDecode(f *testing.F) {
	for _, group := range [][]bad{badForms(), badMessages(), badValues(), badUnsupported(), badParameters(), badPrompts()} {
		for _, b := range group {
			if len(b.body) < 4096 {
				f.Add([]byte(b.body))
			}
		}
	}
	f.Add([]byte(`{` + hello + `,"qr_alpha":0.3,"seed":1,"stop":["a"],"max_tokens":5,"stream":true}`))
	f.Add([]byte(`{"model":"m","prompt":[[1,2]],"extra_args":{"qr_lookahead":"full"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		body, err := api.Parse(raw)
		if err != nil {
			checkClientError(t, err)
			return
		}
		call, err := body.Chat(sampler.Defaults())
		checkCall(t, call, err)
		if err == nil {
			checkMessages(t, call.Request.Chat.Messages)
		}
		call, err = body.Completion(sampler.Defaults())
		checkCall(t, call, err)
	})
}

func checkClientError(t *testing.T, err error) {
	t.Helper()
	e := api.FromError(err, "")
	if e.Status != 400 || e.Message == "" {
		t.Errorf("got %d %q (%v), want a 400 with a message", e.Status, e.Message, err)
	}
	if _, err := json.Marshal(e.Envelope()); err != nil || !utf8.ValidString(e.Message) {
		t.Errorf("message %q can't be sent: %v", e.Message, err)
	}
}

func checkCall(t *testing.T, call *api.Call, err error) {
	t.Helper()
	if err != nil {
		checkClientError(t, err)
		return
	}
	r := call.Request
	err = r.Params.Validate()
	if err != nil || r.MaxTokens < 0 || len(r.Stop) > 16 || r.Model == "" {
		t.Errorf("accepted %+v: %v", r, err)
	}
	for _, id := range r.Tokens {
		if id < 0 {
			t.Errorf("accepted token %d", id)
		}
	}
}

func checkMessages(t *testing.T, raw json.RawMessage) {
	t.Helper()
	var turns []struct {
		Role    string
		Content *string
	}
	if err := json.Unmarshal(raw, &turns); err != nil || len(turns) == 0 {
		t.Fatalf("messages %s: %v", raw, err)
	}
	for _, turn := range turns {
		switch turn.Role {
		case "system", "user", "assistant", "tool":
		default:
			t.Errorf("accepted role %q", turn.Role)
		}
	}
}
