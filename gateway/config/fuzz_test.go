package config_test

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"qr-gateway/gateway/config"
)

// FuzzEnvironment holds that no environment makes loading fail otherwise than with a message, and that what it takes is valid.
func FuzzEnvironment(f *testing.F) {
	for _, s := range []string{
		"QR_TOP_K=7", "QR_ALPHA=null\nQR_SEED=-1", "qr_top_p=0.5\nQR_TOP_P=0.4", "QR_GRPC_SERVER_ADDRESS=[::1]:50051", "QR_LOGIT_BIAS={\"7\":-1}",
		`QR_ENTROPY_SOURCE_INSTANCES={"a":{"type":"quantum_grpc","grpc_timeout_ms":"5"}}`, "QR_PRESET=qthought\nQR_FALLBACK_MODE=error", "QR_LOG_LEVEL=full",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		config.AddFlags(flags)
		if err := flags.Parse([]string{"--model", "m=m.gguf"}); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(config.Options{Env: strings.Split(text, "\n"), Flags: flags})
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		if err := cfg.Validate(); err != nil {
			t.Errorf("loaded, yet %v", err)
		}
	})
}
