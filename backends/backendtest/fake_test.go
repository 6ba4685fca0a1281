package backendtest_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"qr-gateway/backends"
	"qr-gateway/backends/backendtest"
	"qr-gateway/backends/fake"
	"qr-gateway/sampler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func request(prompt string) func(string) *backends.Request {
	return func(id string) *backends.Request {
		return &backends.Request{ID: id, Model: "fake", Text: &prompt, MaxTokens: 12, Params: sampler.Defaults()}
	}
}

func TestFake(t *testing.T) {
	m, err := fake.New(fake.DefaultConfig(), fake.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	backendtest.Run(t, backendtest.Subject{
		Backend: m, Request: request("once upon a time"), TooLong: request(strings.Repeat("x", 3000)),
		Wrong: func(id string) *backends.Request {
			return &backends.Request{ID: id, Model: "fake", Tokens: []int32{-1}, Params: sampler.Defaults()}
		},
	})
}
