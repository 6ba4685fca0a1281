package grpc_test

import (
	"testing"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropytest"
	"qr-gateway/entropy/grpc"
)

func TestConformance(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			entropytest.Run(t, func(t *testing.T) entropy.Source { return open(t, serve(t, system(t), nil), inMode(mode)) })
		})
	}
	t.Run("several requests a draw", func(t *testing.T) {
		entropytest.Run(t, func(t *testing.T) entropy.Source {
			return open(t, serve(t, system(t), nil), func(c *grpc.Config) { c.MaxDraw = 100 })
		})
	})
	t.Run("no echo", func(t *testing.T) {
		entropytest.Run(t, func(t *testing.T) entropy.Source {
			return open(t, serve(t, system(t), nil), func(c *grpc.Config) { c.Echo = grpc.EchoNone })
		})
	})
}
