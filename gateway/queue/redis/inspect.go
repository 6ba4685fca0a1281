package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	client "github.com/redis/go-redis/v9"
)

// layout is the version of the keys and scripts. Processes with another one may not share a queue.
const layout = "qr-gateway queue 2"

// RefusedError is a server that the queue doesn't take, and how to mend it.
type RefusedError struct {
	Reason, Hint string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%s (%s)", e.Reason, e.Hint) }

// inspect refuses a server that is too old, that would throw jobs away, or whose keys of our name are somebody else's.
func (q *Queue) inspect(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, 5*q.cfg.Timeout)
	defer stop()
	if err := q.db.Ping(ctx).Err(); err != nil {
		return refusal(err)
	}
	if err := q.inspectServers(ctx); err != nil {
		return err
	}
	return q.claimName(ctx)
}

func (q *Queue) inspectServers(ctx context.Context) error {
	if cluster, ok := q.db.(*client.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *client.Client) error { return q.inspectServer(ctx, c) })
	}
	return q.inspectServer(ctx, q.db)
}

func (q *Queue) inspectServer(ctx context.Context, db client.Cmdable) error {
	info := db.Info(ctx).Val() // a server that hides it is taken at its word, with a warning
	version := field(info, "redis_version")
	if version != "" && !recent(version) {
		return &RefusedError{
			Reason: fmt.Sprintf("Redis is version %s; the queue needs 6.2 or newer", version),
			Hint:   "upgrade the server",
		}
	}
	policy := field(info, "maxmemory_policy")
	if policy == "" {
		policy = db.ConfigGet(ctx, "maxmemory-policy").Val()["maxmemory-policy"]
	}
	switch policy {
	case "noeviction":
	case "":
		q.deps.Log.WarnContext(ctx, "Redis does not say what it does when its memory is full; its maxmemory-policy must be noeviction, or it may throw jobs away")
	default:
		return &RefusedError{
			Reason: fmt.Sprintf("Redis throws keys away when its memory is full (maxmemory-policy is %s), and jobs with them", policy),
			Hint:   "redis-cli CONFIG SET maxmemory-policy noeviction",
		}
	}
	if version == "" {
		q.deps.Log.WarnContext(ctx, "Redis does not say its version; the queue needs 6.2 or newer")
	}
	return nil
}

// field finds a line of what INFO answers.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func recent(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return true
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 != nil || err2 != nil || major > 6 || major == 6 && minor >= 2
}

// claimName marks the queue's keys as ours, with the version of their layout.
func (q *Queue) claimName(ctx context.Context) error {
	key := q.base + ":layout"
	if err := q.db.SetNX(ctx, key, layout, 0).Err(); err != nil {
		return refusal(err)
	}
	have, err := q.db.Get(ctx, key).Result()
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE"), err == nil && have != layout:
		return &RefusedError{
			Reason: fmt.Sprintf("the keys that begin with %s: belong to another program, or to another version of this one (%q; this is %q)", q.base, have, layout),
			Hint:   "give the queue another name, or stop all of the other version first and delete those keys",
		}
	case err != nil:
		return refusal(err)
	}
	_, err = q.Stats(ctx)
	if err != nil {
		return refusal(err)
	}
	return nil
}

// refusal says what a server's first answer means.
func refusal(err error) error {
	text := err.Error()
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("WRONGPASS", "invalid password"):
		return &RefusedError{Reason: "Redis refuses the user name or password", Hint: "check both; the password is the one of this server, or of its ACL user"}
	case has("NOAUTH"):
		return &RefusedError{Reason: "Redis asks for a password", Hint: "put it into the password file, or into the URL: redis://:PASSWORD@host:port/0"}
	case has("DB index", "invalid DB", "SELECT is not allowed"):
		return &RefusedError{Reason: "Redis has no database of this number", Hint: "give a lower one at the end of the URL, e.g. /0; a Cluster has only 0"}
	case has("NOPERM"):
		return &RefusedError{Reason: "Redis does not let this user do what the queue needs: " + text, Hint: "allow it +@all on ~{qr:*} and &{qr:*}"}
	case has("READONLY"):
		return &RefusedError{Reason: "this Redis is a replica", Hint: "give the address of the master, or of Sentinel: redis-sentinel://host:26379/0?master_name=NAME"}
	case has("MOVED", "CROSSSLOT"):
		return &RefusedError{Reason: "this Redis is part of a Cluster", Hint: "write redis-cluster:// in the place of redis://"}
	}
	return errors.Join(&RefusedError{Reason: "Redis can't be reached", Hint: "check that it runs there and may be connected to"}, err)
}
