package api_test

import (
	"testing"

	"qr-gateway/gateway/api"
	"qr-gateway/sampler"
)

func BenchmarkDecode(b *testing.B) {
	raw := []byte(`{"model":"m","stream":true,"temperature":0.7,"max_tokens":200,"qr_alpha":0.3,"qr_curve":"article","stop":["###"],
		"messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"Write a short story about a lighthouse."}]}`)
	defaults := sampler.Defaults()
	b.ReportAllocs()
	for b.Loop() {
		body, err := api.Parse(raw)
		must(b, err)
		_, err = body.Chat(defaults)
		must(b, err)
	}
}
