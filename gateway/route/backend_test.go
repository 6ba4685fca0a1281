package route_test

import (
	"testing"

	"qr-gateway/backends"
	"qr-gateway/backends/backendtest"
	"qr-gateway/sampler"
)

// TestIsABackend holds a group to what every backend owes, alone and with replicas of several sizes.
func TestIsABackend(t *testing.T) {
	for name, sizes := range map[string][]int{"one": {2}, "three": {2, 1, 4}} {
		t.Run(name, func(t *testing.T) {
			var all []*engine
			for i, workers := range sizes {
				all = append(all, newEngine(t, string(rune('a'+i)), workers))
			}
			backendtest.Run(t, backendtest.Subject{
				Backend: group(t, config(), all...), Request: request,
				Wrong: func(id string) *backends.Request {
					return &backends.Request{ID: id, Model: "m", Tokens: []int32{-1}, Params: sampler.Defaults()}
				},
			})
		})
	}
}
