package queue

import (
	"errors"
	"fmt"
	"time"
)

// Config bounds a queue and sets how it orders. All implementations take it. Start from [DefaultConfig].
type Config struct {
	// Waiting jobs, in all and of one key; those that run don't count. At least 1.
	Jobs, JobsPerKey int
	// Tokens (cost) of waiting jobs, in all and of one key. At least 1. A job alone in the line is taken whatever it costs.
	Tokens, TokensPerKey int
	// Bytes of the payloads of waiting jobs, in all and of one key, and of any one job. At least 1.
	Bytes, BytesPerKey, Payload int

	Wait     time.Duration // a job without a deadline of its own must be claimed within this time; 0 is no limit
	Lease    time.Duration // without a heartbeat for this long the lease is lost
	Stall    time.Duration // a streaming job whose progress stands still for this long loses its lease; 0 is off
	Attempts int           // leases a job may lose before its first token; at least 1

	Age           time.Duration // a job that waits so long counts as one class more urgent, and so on; 0 is off
	AffinityAge   time.Duration // a job that has waited so long is never overtaken for the sake of a warm prefix
	AffinitySlack int           // tokens by which a key may be served before its turn for the sake of a warm prefix

	Keep     time.Duration // how long a finished job and its log are remembered
	KeepJobs int           // how many finished jobs are remembered at most
	// The log of one job, in entries and in bytes: what is older is dropped. At least 1.
	LogEntries, LogBytes int
}

// DefaultConfig is what a gateway without a config file runs with.
func DefaultConfig() Config {
	return Config{
		Jobs: 256, JobsPerKey: 64, Tokens: 2_000_000, TokensPerKey: 1_000_000,
		Bytes: 256 << 20, BytesPerKey: 64 << 20, Payload: 16 << 20,
		Wait: 10 * time.Minute, Lease: 6 * time.Second, Stall: 2 * time.Minute, Attempts: 2,
		Age: 30 * time.Second, AffinityAge: 2 * time.Second, AffinitySlack: 8192,
		Keep: 10 * time.Minute, KeepJobs: 4096, LogEntries: 8192, LogBytes: 1 << 20,
	}
}

// Validate reports every field that is out of range.
func (c Config) Validate() error {
	return errors.Join(
		atLeast("jobs", c.Jobs, 1), atLeast("jobs_per_key", c.JobsPerKey, 1),
		atLeast("tokens", c.Tokens, 1), atLeast("tokens_per_key", c.TokensPerKey, 1),
		atLeast("bytes", c.Bytes, 1), atLeast("bytes_per_key", c.BytesPerKey, 1), atLeast("payload", c.Payload, 1),
		atLeast("attempts", c.Attempts, 1), atLeast("keep jobs", c.KeepJobs, 0),
		atLeast("log entries", c.LogEntries, 1), atLeast("log bytes", c.LogBytes, 1),
		atLeast("lease", c.Lease, 10*time.Millisecond),
		atLeast("wait limit", c.Wait, 0), atLeast("stall limit", c.Stall, 0), atLeast("keep time", c.Keep, 0),
		atLeast("age", c.Age, 0), atLeast("affinity age", c.AffinityAge, 0), atLeast("affinity slack", c.AffinitySlack, 0),
	)
}

func atLeast[T int | time.Duration](name string, value, least T) error {
	if value >= least {
		return nil
	}
	return fmt.Errorf("%s is %v; it must be at least %v", name, value, least)
}
