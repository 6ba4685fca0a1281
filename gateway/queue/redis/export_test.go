package redis

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"

	"qr-gateway/gateway/queue"
)

// skewedClock is the server's clock with as much added as a test says, in microseconds.
const skewedClock = `
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2] + (tonumber(redis.call('GET', KEYS[1] .. ':skew') or 0) or 0)
end
`

// OpenSkewed opens a queue whose clock a test moves.
func OpenSkewed(ctx context.Context, cfg Config, deps Deps) (*Queue, error) {
	return open(ctx, cfg, deps, skewedClock)
}

// Skew moves the clock.
func (q *Queue) Skew(ctx context.Context, micros int64) error {
	return q.db.IncrBy(ctx, q.base+":skew", micros).Err()
}

// Tick does what a tick does, and has claims ask again.
func (q *Queue) Tick(ctx context.Context) error {
	q.nudge("", 0)
	return q.tick(ctx)
}

// Barrier waits until what was published to this process before has been taken.
func (q *Queue) Barrier(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	if !q.subscribe("\x00barrier", wake) {
		return nil
	}
	defer q.waits.Done()
	defer q.unsubscribe("\x00barrier", wake)
	if err := q.db.Publish(ctx, q.base+":c:"+q.id, `["l","\u0000barrier"]`).Err(); err != nil {
		return err
	}
	select {
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Base is what all keys begin with.
func (q *Queue) Base() string { return q.base }

// Busy is how long the server has computed since it started, in seconds.
func (q *Queue) Busy(ctx context.Context) float64 {
	info := q.db.Info(ctx, "cpu").Val()
	user, _ := strconv.ParseFloat(field(info, "used_cpu_user"), 64)
	sys, _ := strconv.ParseFloat(field(info, "used_cpu_sys"), 64)
	return user + sys
}

// Try asks once for a job, without waiting for one. Where there is none the claim stays noted, unless forget.
func (q *Queue) Try(ctx context.Context, offer queue.Offer, forget bool) (queue.Lease, bool, error) {
	c := &claimant{offer: offer, waiter: rand.Text(), wake: make(chan struct{}, 1)}
	l, found, err := q.ask(ctx, c)
	if !found && forget {
		q.withdraw(ctx, c)
	}
	return l, found, err
}

// Fields takes a job's record apart.
func Fields(raw string) map[string]string {
	out := map[string]string{}
	for i, text := range strings.Split(raw, "\x01") {
		if i < len(record) {
			out[record[i]] = text
		}
	}
	return out
}

// Client is the name of this process among the clients.
func (q *Queue) Client() string { return q.id }
