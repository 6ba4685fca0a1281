package main

import (
	"log/slog"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"qr-gateway/gateway/config"
	"qr-gateway/gateway/queue/redis"
)

// TestNamesakes: of two processes with one name, as one configuration for all machines gives them, neither takes the requests of the other for its own.
func TestNamesakes(t *testing.T) {
	s := miniredis.RunT(t)
	cfg := config.Default()
	cfg.Worker.Name, cfg.Redis.URL, cfg.Redis.Tokens = "same", "redis://"+s.Addr()+"/0", config.TokensLog
	var all [2]*cluster
	for i := range all {
		var err error
		if all[i], err = newCluster(t.Context(), cfg, role{name: redis.RoleGateway, edge: true, work: true}, nil, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = all[i].shared.Close() }()
	}
	if a, b := all[0].owner(), all[1].owner(); a == b {
		t.Errorf("both own requests as %q", a)
	}
}
