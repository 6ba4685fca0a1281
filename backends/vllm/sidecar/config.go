package sidecar

import (
	"errors"
	"fmt"
	"time"

	"qr-gateway/entropy/grpc/address"
)

// Config is where a sidecar listens and what it keeps. Start from [DefaultConfig].
type Config struct {
	Socket string `mapstructure:"socket"` // path of the Unix socket that plugins dial; empty: none
	UIDs   []int  `mapstructure:"uids"`   // users besides this process's own and root whose plugins may connect

	Listen   string `mapstructure:"listen"` // host:port or unix:///path of the gRPC service; empty: none
	Security `mapstructure:",squash"`

	Deadline time.Duration `mapstructure:"deadline"` // of one step
	Top      int           `mapstructure:"top"`      // entries of a compact row
	Keep     time.Duration `mapstructure:"keep"`     // of a request that nobody shows or follows
	Requests int           `mapstructure:"requests"` // kept at once
	Version  string        `mapstructure:"-"`        // of the program
}

// Limits of a configuration.
const (
	maxTop      = 8192
	maxDeadline = 10 * time.Second
	minKeep     = time.Second
)

// DefaultConfig listens nowhere yet.
func DefaultConfig() Config {
	return Config{Deadline: 200 * time.Millisecond, Top: 256, Keep: 10 * time.Minute, Requests: 4096}
}

// Validate says what is wrong. It reads no files.
func (c *Config) Validate() error {
	var all []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	check(c.Socket != "" || c.Listen != "", "neither socket nor listen is given: name a Unix socket for plugins, or an address for gRPC")
	check(c.Deadline >= time.Millisecond && c.Deadline <= maxDeadline, "deadline is %v; it takes %v to %v", c.Deadline, time.Millisecond, maxDeadline)
	check(c.Top >= 1 && c.Top <= maxTop, "top is %d; it takes 1 to %d", c.Top, maxTop)
	check(c.Keep >= minKeep, "keep is %v; it takes %v or more", c.Keep, minKeep)
	check(c.Requests >= 1, "requests is %d; it takes 1 or more", c.Requests)
	for _, uid := range c.UIDs {
		check(uid >= 0, "uids has %d; it takes numbers from 0", uid)
	}
	if c.Socket != "" {
		if _, err := address.Parse("unix://" + c.Socket); err != nil {
			all = append(all, fmt.Errorf("socket: %w", err))
		}
	}
	if c.Listen != "" {
		all = append(all, c.check(c.Listen))
	}
	return errors.Join(all...)
}
