package llama

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	pb "qr-gateway/backends/llama/enginepb"
)

// Config is one served model and the engine process that owns it. Zero fields take the engine's defaults unless they say
// otherwise; start from [DefaultConfig].
type Config struct {
	ID          string // served model id
	Description string // shown with the model; empty: llama.cpp's own
	Binary      string // engine program; empty: qr-engine beside this program
	Entropy     string // path of the entropy hub's socket; empty: the engine draws from the operating system alone
	Model       string // GGUF file

	Workers        int    // requests at once, each with a KV cache of its own; 0 is 4
	Context        int    // tokens of one request; 0 is the model's own, at most 8192
	Threads        int    // 0 is one per core
	Group          int    // candidates decoded in one batch; 0 is 8
	Chunk          int    // prompt tokens of one decode; 0 is 256
	GPULayers      int    // negative is all; ignored by a CPU build
	FlashAttention bool   // slower for candidates on a CPU
	CanonicalCells bool   // the way candidates are evaluated leaves hardly a trace; slower
	KVType         string // f16 or f32; empty is f16
	Poll           int    // how long threads spin before they block, 0 to 100; 0 blocks at once

	WaitReady    time.Duration // how long a request waits for an engine that restarts
	StallTimeout time.Duration // a busy engine that ends no decode for so long is killed
	StartTimeout time.Duration // from the start of the process to its first answer
	LoadTimeout  time.Duration // loading, self-test and first token
	Grace        time.Duration // from TERM to KILL
	BackoffMin   time.Duration // before the first restart; doubles with each further one
	BackoffMax   time.Duration // greatest wait before a restart
	Healthy      time.Duration // an engine that lived so long starts the back-off anew
	LogLevel     string        // lowest level that the engine logs; empty is info
}

// DefaultConfig has the times; the model is still to be named.
func DefaultConfig() Config {
	return Config{
		WaitReady: 30 * time.Second, StallTimeout: 60 * time.Second,
		StartTimeout: 20 * time.Second, LoadTimeout: 10 * time.Minute, Grace: 5 * time.Second,
		BackoffMin: 200 * time.Millisecond, BackoffMax: 10 * time.Second, Healthy: 60 * time.Second,
	}
}

// Validate reports what can't be. The engine checks the sizes against the model.
func (c *Config) Validate() error {
	if c.ID == "" {
		return errors.New("model has no id")
	}
	if c.Model == "" {
		return fmt.Errorf("model %s has no path", c.ID)
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"workers", c.Workers},
		{"context", c.Context},
		{"threads", c.Threads},
		{"group", c.Group},
		{"chunk", c.Chunk},
		{"poll", c.Poll},
	} {
		if n.value < 0 {
			return fmt.Errorf("model %s: %s is %d; it can't be negative", c.ID, n.name, n.value)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"wait_ready", c.WaitReady},
		{"stall_timeout", c.StallTimeout},
		{"start_timeout", c.StartTimeout},
		{"load_timeout", c.LoadTimeout},
		{"grace", c.Grace},
		{"backoff_min", c.BackoffMin},
		{"backoff_max", c.BackoffMax},
		{"healthy", c.Healthy},
	} {
		if d.value <= 0 {
			return fmt.Errorf("model %s: %s is %v; it takes more than 0", c.ID, d.name, d.value)
		}
	}
	return nil
}

// Binary is the engine program: path, or where that is empty the qr-engine beside this program.
func Binary(path string) (string, error) {
	if path != "" {
		return path, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find engine program: %w", err)
	}
	return filepath.Join(filepath.Dir(self), "qr-engine"), nil
}

func (c *Config) loadRequest() *pb.LoadRequest {
	return &pb.LoadRequest{
		ModelPath: c.Model, Workers: uint32(c.Workers), Context: uint32(c.Context), Threads: uint32(c.Threads),
		Group: uint32(c.Group), Chunk: uint32(c.Chunk), GpuLayers: int32(c.GPULayers),
		FlashAttention: c.FlashAttention, KvType: c.KVType, Poll: uint32(c.Poll),
		CanonicalCells: c.CanonicalCells,
	}
}
