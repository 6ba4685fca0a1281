package main

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"qr-gateway/gateway/queue/redis"
)

func TestMain(m *testing.M) {
	redis.LogTo(slog.New(slog.DiscardHandler)) // that a server is away is no news
	testscript.Main(m, map[string]func(){"qr-gateway": main})
}

// TestScripts drives the command line as a user does; see testdata/script.
func TestScripts(t *testing.T) {
	signal.Ignore(syscall.SIGPIPE)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Vars = append(e.Vars, "ENGINE="+os.Getenv("QR_TEST_ENGINE"), "MODEL="+os.Getenv("QR_TEST_MODEL"))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			return os.Getenv("QR_TEST_ENGINE") != "" && os.Getenv("QR_TEST_MODEL") != "", nil
		},
	})
}
