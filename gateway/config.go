package gateway

import (
	"fmt"
	"time"
)

// Config of the HTTP edge.
type Config struct {
	Listen         string        // host:port
	BodyLimit      int64         // bytes of a request body
	BodyTimeout    time.Duration // for a client to send its body
	PrepareTimeout time.Duration // for a backend to render and tokenise a prompt
	KeepAlive      time.Duration // between comments in a stream
	WriteTimeout   time.Duration // for one write; a client that reads nothing for so long loses its job
	DrainTimeout   time.Duration // for running requests to end once the server is told to stop
	Origins        []string      // browsers' origins allowed by CORS; "*" is any; none is off
	PublicURL      string        // where people reach the server, without a slash at the end; empty: as each request did
	PlainTasks     bool          // clients' own calls, such as for a title, get plain sampling by the standard fields
	TaskTokens     int           // of such a call that sets no limit itself; 0 is the rest of the context
	TaskAliases    bool          // the model list has the alias of each model for such calls
	ModelInfo      bool          // the model list describes models in Open WebUI's terms
	Version        string        // shown as system_fingerprint and to /healthz
}

// DefaultConfig is what a server without a configuration file runs with.
func DefaultConfig() Config {
	return Config{
		Listen: "127.0.0.1:8080", BodyLimit: 10 << 20, BodyTimeout: time.Minute, PrepareTimeout: 30 * time.Second,
		KeepAlive: 10 * time.Second, WriteTimeout: 30 * time.Second, DrainTimeout: 30 * time.Second, Version: "dev",
		PlainTasks: true, TaskTokens: 512, ModelInfo: true,
	}
}

// Validate checks the values.
func (c Config) Validate() error {
	if c.BodyLimit < 1 {
		return fmt.Errorf("check server: body limit is %d bytes; it takes 1 or more", c.BodyLimit)
	}
	if c.TaskTokens < 0 {
		return fmt.Errorf("check server: tasks may have %d tokens; it takes 0 or more", c.TaskTokens)
	}
	durations := []struct {
		name  string
		value time.Duration
	}{
		{"body timeout", c.BodyTimeout},
		{"prepare timeout", c.PrepareTimeout},
		{"keep-alive", c.KeepAlive},
		{"write timeout", c.WriteTimeout},
		{"drain timeout", c.DrainTimeout},
	}
	for _, d := range durations {
		if d.value <= 0 {
			return fmt.Errorf("check server: %s is %s; it takes more than 0", d.name, d.value)
		}
	}
	return nil
}
