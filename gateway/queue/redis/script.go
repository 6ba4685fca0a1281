package redis

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	client "github.com/redis/go-redis/v9"

	"qr-gateway/gateway/queue"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts are the transitions, by name. Redis keeps them by their hash and is sent one whole only when it doesn't know it.
type scripts map[string]*client.Script

// serverClock is the time in microseconds.
const serverClock = `
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
`

// payloadTTL is how long a payload may outlive everything that knows of it.
const payloadTTL = 24 * time.Hour

// newScripts writes the limits into the scripts: they don't change while a queue is open, and cost nothing there.
func newScripts(cfg Config, clock string) scripts {
	head, library := limits(cfg), parse(clock+codec()+source("line")+source("state"))
	all := scripts{}
	for _, name := range []string{
		"submit", "claim", "withdraw", "heartbeat", "restore", "settle", "cancel", "watch", "append", "read", "sweep", "alive", "stats",
		"announce", "members", "depart", "drain",
	} {
		body := source(name)
		whole := "local function main()\n" + body + "end\nlocal answer = main()\nsave()\nreturn answer\n"
		text := head + library.link(whole)
		all[name] = client.NewScript(text)
		if name != "submit" && name != "append" {
			all[name+full] = client.NewScript(dirty + text)
		}
	}
	return all
}

// full marks a script as it is run when the server's memory is full. Redis then refuses the first command of a script that might take more, but
// nothing after one that has changed something: else no job could end, and no memory become free.
const (
	full  = " when memory is full"
	dirty = "redis.call('DEL', KEYS[1] .. ':none')\n"
)

func source(name string) string {
	data, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // it is part of the program
	}
	return string(data)
}

func limits(cfg Config) string {
	var b strings.Builder
	b.WriteString("local C = {")
	put := func(name string, value int64) { fmt.Fprintf(&b, " %s = %d,", name, value) }
	put("jobs", int64(cfg.Jobs))
	put("jobs_per_key", int64(cfg.JobsPerKey))
	put("tokens", int64(cfg.Tokens))
	put("tokens_per_key", int64(cfg.TokensPerKey))
	put("bytes", int64(cfg.Bytes))
	put("bytes_per_key", int64(cfg.BytesPerKey))
	put("attempts", int64(cfg.Attempts))
	put("affinity_slack", int64(cfg.AffinitySlack))
	put("keep_jobs", int64(cfg.KeepJobs))
	put("log_entries", int64(cfg.LogEntries))
	put("log_bytes", int64(cfg.LogBytes))
	put("lease", cfg.Lease.Microseconds())
	put("stall", cfg.Stall.Microseconds())
	put("age", cfg.Age.Microseconds())
	put("affinity_age", cfg.AffinityAge.Microseconds())
	put("waiter", (3 * cfg.Poll).Microseconds())
	put("tick", min(1000, cfg.Lease.Microseconds()/20))
	for name, d := range map[string]time.Duration{"keep": max(time.Second, cfg.Keep), "payload_ttl": payloadTTL, "lease_ms": cfg.Lease} {
		fmt.Fprintf(&b, " %s = '%d',", name, d.Milliseconds()) // only for commands, which take texts faster
	}
	b.WriteString(" }\n")
	return b.String()
}

// run runs a script. Its error is ctx's, queue.ErrClosed, or matches queue.ErrUnavailable. A nil reply is nil.
func (q *Queue) run(ctx context.Context, name string, args ...any) (any, error) {
	began := time.Now()
	keys := []string{q.base}
	reply, err := q.scripts[name].Run(ctx, q.db, keys, args...).Result()
	if other := q.scripts[name+full]; other != nil && err != nil && strings.Contains(err.Error(), "OOM command not allowed") {
		reply, err = other.Run(ctx, q.db, keys, args...).Result()
	}
	q.calls.note(name, time.Since(began), err != nil && !errors.Is(err, client.Nil))
	switch {
	case err == nil:
		return reply, nil
	case errors.Is(err, client.Nil):
		return nil, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, client.ErrClosed):
		return nil, queue.ErrClosed
	default:
		return nil, fmt.Errorf("ask the queue's server (%s): %w: %w", name, queue.ErrUnavailable, err)
	}
}

// word runs a script that answers with a word.
func (q *Queue) word(ctx context.Context, name string, args ...any) (string, error) {
	reply, err := q.run(ctx, name, args...)
	if err != nil {
		return "", err
	}
	return text(reply), nil
}

// exchanges counts what was asked of the server.
type exchanges struct {
	mu  sync.Mutex // guards all
	all map[string]queue.CallStats
}

func (e *exchanges) note(name string, took time.Duration, failed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.all[name]
	s.Calls++
	s.Time += took
	if failed {
		s.Errors++
	}
	e.all[name] = s
}

func (e *exchanges) stats() map[string]queue.CallStats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.all)
}
