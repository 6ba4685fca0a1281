package redis_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	client "github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/queuetest"
	"qr-gateway/gateway/queue/redis"
)

// TestCounts holds that what is counted on the server is what a count of its jobs says, whatever was done to them.
func TestCounts(t *testing.T) {
	s := serve(t)
	db := s.client()
	defer func() { _ = db.Close() }()
	cfg := (&rig{url: s.url()}).config(queuetest.Wide())
	cfg.Jobs, cfg.JobsPerKey, cfg.Tokens, cfg.Bytes, cfg.Stall, cfg.KeepJobs = 12, 6, 60, 40, 20*time.Second, 4
	rapid.Check(t, func(t *rapid.T) {
		if err := db.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		q, err := redis.OpenSkewed(t.Context(), cfg, quiet()) // not run, so that nobody else moves anything
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = q.Close() }()
		c := &counted{q: q, db: db}
		t.Repeat(map[string]func(*rapid.T){
			"submit":  c.submit,
			"submit2": c.submit,
			"claim":   c.claim,
			"claim2":  c.claim,
			"beat":    c.beat,
			"settle":  c.settle,
			"cancel":  c.cancel,
			"wait":    c.wait,
			"spoil":   c.spoil,
			"forget":  c.forget,
			"":        c.check,
		})
	})
}

// counted is a queue of which all is known.
type counted struct {
	q      *redis.Queue
	db     *client.Client
	n      int
	leases []queue.Lease
	seq    int64
}

func (c *counted) submit(t *rapid.T) {
	id := fmt.Sprint("j", c.n)
	if c.n > 0 && rapid.IntRange(0, 9).Draw(t, "again") == 0 {
		id = fmt.Sprint("j", rapid.IntRange(0, c.n-1).Draw(t, "old"))
	}
	c.n++
	job := queue.Job{
		ID: id, Key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"), Model: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "model"),
		Class: queue.Class(rapid.IntRange(0, 2).Draw(t, "class")), Cost: rapid.IntRange(0, 9).Draw(t, "cost"),
		Payload: make([]byte, rapid.IntRange(0, 9).Draw(t, "bytes")), IdempotencyKey: rapid.SampledFrom([]string{"", "", "i", "k"}).Draw(t, "idem"),
	}
	if rapid.Bool().Draw(t, "hurry") {
		job.Deadline = time.Now().Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "within")) * time.Second)
	}
	if _, err := c.q.Submit(t.Context(), job); err != nil && !errors.Is(err, queue.ErrFull) {
		t.Fatal(err)
	}
}

func (c *counted) claim(t *rapid.T) {
	offer := queue.Offer{
		Node: "n", Models: rapid.SampledFrom([][]string{{"x"}, {"y"}, {"x", "y"}}).Draw(t, "models"),
		Least: queue.Class(rapid.IntRange(0, 2).Draw(t, "least")), Loaded: []string{"x"},
	}
	l, found, err := c.q.Try(t.Context(), offer, rapid.Bool().Draw(t, "withdraw"))
	if err != nil {
		t.Fatal(err)
	}
	if found {
		c.leases = append(c.leases, l)
	}
}

// some is a lease, old ones among them.
func (c *counted) some(t *rapid.T) queue.Lease {
	if len(c.leases) == 0 {
		t.Skip("there is none")
	}
	return rapid.SampledFrom(c.leases).Draw(t, "lease")
}

func (c *counted) beat(t *rapid.T) {
	l := c.some(t)
	c.seq += int64(rapid.IntRange(0, 1).Draw(t, "begun"))
	err := c.q.Heartbeat(t.Context(), l, queue.Progress{Seq: c.seq, Cost: rapid.IntRange(0, 9).Draw(t, "taken")})
	if err != nil && !errors.Is(err, queue.ErrFenced) {
		t.Fatal(err)
	}
	if err == nil && rapid.Bool().Draw(t, "log") {
		if err := c.q.Append(t.Context(), l, []byte("entry")); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *counted) settle(t *rapid.T) {
	l := c.some(t)
	o := queue.Outcome{
		State: rapid.SampledFrom([]queue.State{queue.StateDone, queue.StateFailed, queue.StateCancelled, queue.StateQueued}).Draw(t, "state"),
		Cost:  rapid.IntRange(0, 20).Draw(t, "cost"), Reason: rapid.SampledFrom([]string{"", "r"}).Draw(t, "reason"),
	}
	_ = c.q.Settle(t.Context(), l, o) // what it refuses is not the matter here
}

func (c *counted) cancel(t *rapid.T) {
	if c.n == 0 {
		t.Skip("there is none")
	}
	_ = c.q.Cancel(t.Context(), fmt.Sprint("j", rapid.IntRange(0, c.n-1).Draw(t, "job")), "r") // it may be gone
}

func (c *counted) wait(t *rapid.T) {
	for range rapid.IntRange(1, 8).Draw(t, "seconds") {
		if err := errors.Join(c.q.Skew(t.Context(), 1e6), c.q.Tick(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
}

// spoil loses what a node would get of a job.
func (c *counted) spoil(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
		t.Skip("not now")
	}
	keys := c.keys(t, "pay:")
	if len(keys) == 0 {
		t.Skip("there is none")
	}
	c.db.Del(t.Context(), rapid.SampledFrom(keys).Draw(t, "payload"))
}

func (c *counted) forget(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
		t.Skip("not now")
	}
	for _, key := range c.keys(t, "") {
		if !strings.HasSuffix(key, ":skew") {
			c.db.Del(t.Context(), key)
		}
	}
}

func (c *counted) keys(t *rapid.T, begin string) []string {
	all, err := c.db.Keys(t.Context(), c.q.Base()+":"+begin+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// tally is what is counted.
type tally struct {
	Use   map[string]string   // what waits, by the end of the key's name
	Lines map[string]string   // jobs, tokens and running
	Sets  map[string][]string // members of sets of jobs or keys
}

func newTally() *tally {
	return &tally{Use: map[string]string{}, Lines: map[string]string{}, Sets: map[string][]string{}}
}

func (y *tally) add(set, member string) { y.Sets[set] = append(y.Sets[set], member) }

func (c *counted) check(t *rapid.T) {
	want, have := c.expected(t), c.counts(t)
	sorted := cmpopts.SortSlices(strings.Compare)
	if diff := cmp.Diff(want, have, cmpopts.EquateEmpty(), sorted); diff != "" {
		t.Fatalf("(-as the jobs say +as is counted)\n%s", diff)
	}
}

// expected counts the jobs.
func (c *counted) expected(t *rapid.T) *tally {
	want := newTally()
	use, lines := map[string][3]int{}, map[string][3]int{}
	for _, key := range c.keys(t, "job:") {
		id := strings.TrimPrefix(key, c.q.Base()+":job:")
		j := redis.Fields(c.db.Get(t.Context(), key).Val())
		var cost, bytes int
		_, _ = fmt.Sscan(j["cost"]+" "+j["bytes"], &cost, &bytes) // a record that is not whole counts for nothing
		cm, l := j["line"], lines[j["line"]]
		state := queue.State(j["state"])
		switch {
		case state == queue.StateQueued:
			for _, name := range []string{"", ":" + j["key"]} {
				u := use[name]
				use[name] = [3]int{u[0] + 1, u[1] + cost, u[2] + bytes}
			}
			lines[cm] = [3]int{l[0] + 1, l[1] + cost, l[2]}
			want.add("a:"+cm, id)
			want.add(fmt.Sprintf("l:%d:%s:%s", len(cm), cm, j["key"]), id)
			if !slices.Contains(want.Sets["t:"+cm], j["key"]) {
				want.add("t:"+cm, j["key"])
				want.add("k:"+cm, j["key"])
			}
			if j["dl"] != "0" {
				want.add("late", id)
			}
		case !state.Terminal():
			lines[cm] = [3]int{l[0], l[1], l[2] + 1}
			want.add("run", id)
		default:
			want.add("fin", id)
		}
		if !state.Terminal() && j["client"] != "" {
			want.add("own:"+j["client"], id)
		}
	}
	for name, u := range use {
		want.Use[name] = fmt.Sprint(u[0], u[1], u[2])
	}
	for cm, l := range lines {
		if l != [3]int{} {
			want.Lines[cm] = fmt.Sprint(l[0], l[1], l[2])
		}
	}
	return want
}

// counts reads what is kept beside the jobs.
func (c *counted) counts(t *rapid.T) *tally {
	have := newTally()
	for _, key := range c.keys(t, "") {
		name := strings.TrimPrefix(key, c.q.Base()+":")
		kind, rest, _ := strings.Cut(name, ":")
		switch kind {
		case "use":
			have.Use[strings.TrimPrefix(name, "use")] = c.db.Get(t.Context(), key).Val()
		case "m":
			words := strings.Fields(c.db.Get(t.Context(), key).Val())
			if l := strings.Join(words[:3], " "); l != "0 0 0" {
				have.Lines[rest] = l
			}
		case "a", "l", "late", "run", "fin":
			have.Sets[name] = c.db.ZRange(t.Context(), key, 0, -1).Val()
		case "own":
			have.Sets[name] = c.db.SMembers(t.Context(), key).Val()
		case "k":
			have.Sets[name] = slices.Collect(maps.Keys(c.db.HGetAll(t.Context(), key).Val()))
		case "t":
			for _, member := range c.db.ZRange(t.Context(), key, 0, -1).Val() {
				have.add(name, member[16:])
			}
		}
	}
	return have
}

// TestForgetsClaims: claims of a node that died while it waited are forgotten.
func TestForgetsClaims(t *testing.T) {
	s := serve(t)
	q := start(t, (&rig{url: s.url()}).config(queuetest.Wide()))
	if _, found, err := q.Try(t.Context(), queue.Offer{Node: "n", Models: []string{"m"}}, false); found || err != nil {
		t.Fatal(found, err)
	}
	db := s.client()
	defer func() { _ = db.Close() }()
	waiters := q.Base() + ":waiters"
	if n := db.ZCard(t.Context(), waiters).Val(); n != 1 {
		t.Fatalf("%d claims wait, want 1", n)
	}
	advance(t, q, 15*time.Second)
	if n := db.ZCard(t.Context(), waiters).Val(); n != 0 {
		t.Errorf("%d claims are kept", n)
	}
}
