// Package redis is the queue that machines share: gateways submit to it and nodes claim from it through one Redis server, 6.2 or
// newer, alone, behind Sentinel or as a Cluster.
//
// Every transition is one Lua script, so it happens whole or not at all, and by the server's clock, so that what the clocks of
// the machines say makes no difference. Scripts may be sent twice: each does nothing the second time. What happens is
// published to those who wait for it; a slow poll makes up for what is lost on the way. The scripts are in lua, and the
// layout of the keys at the top of lua/line.lua.
//
// Each step of a job is one exchange with the server. For a job alone in its line that nobody watches it takes at most so many commands
// there, the script itself among them: 20 to submit, 23 to claim, 5 for a heartbeat, 16 to settle. A submission takes 2 more for each of
// the first 16 other keys that go before it, since it tells the position. Nothing is published that nobody waits for.
//
// A [Queue] has the goroutines of [Queue.Run]: one that reads what is published, and one that keeps time: it sweeps, says that this process is alive, and polls.
// What Redis forgets (it was emptied, or a replica took over that was behind) the gateways submit again, see queue.ErrUnknown and
// queue.Job.Floor; runs whose client has part of the answer go on, and their heartbeats enter them again.
package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	client "github.com/redis/go-redis/v9"

	"qr-gateway/gateway/queue"
)

// Config is where the queue is and what bounds it. Start from [DefaultConfig].
type Config struct {
	// URL is redis://user:password@host:port/db, rediss:// for TLS, unix:///path, redis-sentinel://host:port/db?master_name=NAME&addr=host:port, or
	// redis-cluster://host:port?addr=host:port.
	URL      string
	Password string        // instead of one in the URL
	Name     string        // of the queue: queues of different names on one server know nothing of each other
	Poll     time.Duration // of claims that wait, in case what was published got lost
	Timeout  time.Duration // of one exchange with the server
	queue.Config
}

// DefaultConfig is a server on this machine.
func DefaultConfig() Config {
	return Config{
		URL: "redis://127.0.0.1:6379/0", Name: "qr-gateway", Poll: 2 * time.Second, Timeout: 2 * time.Second, Config: queue.DefaultConfig(),
	}
}

// Validate reports every field that is out of range.
func (c Config) Validate() error {
	var errs []error
	if c.Name == "" || len(c.Name) > 64 || !plain(c.Name) {
		errs = append(errs, fmt.Errorf("name is %q; it takes 1 to 64 letters, digits, dots, dashes and underscores", c.Name))
	}
	if c.Poll <= 0 || c.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("poll is %s and timeout %s; both must be above 0", c.Poll, c.Timeout))
	}
	return errors.Join(append(errs, c.Config.Validate())...)
}

func plain(name string) bool {
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.' {
			return false
		}
	}
	return true
}

// Deps is what a queue works with.
type Deps struct {
	Log *slog.Logger // optional
}

// Queue implements [queue.Queue].
type Queue struct {
	cfg     Config
	deps    Deps
	id      string // of this process among the clients
	base    string // of all keys; the hash tag keeps them on one node of a Cluster
	db      client.UniversalClient
	scripts scripts
	calls   exchanges

	mu      sync.Mutex // guards what follows
	closed  bool
	claims  map[string]*claimant // claims that wait, by waiter
	held    map[string]*holding  // leases of this process, by job
	gone    map[string]int64     // leases lost before they were held, by job
	watched map[string]*topic    // by job
	readers map[string][]chan struct{}
	stop    chan struct{}  // closed when the queue closes
	waits   sync.WaitGroup // calls that wait
}

var _ queue.Queue = (*Queue)(nil)

// Open connects, and refuses a server that would lose jobs. The queue works at once, but nothing expires until Run is called.
// Run or Close frees it.
func Open(ctx context.Context, cfg Config, deps Deps) (*Queue, error) {
	return open(ctx, cfg, deps, serverClock)
}

func open(ctx context.Context, cfg Config, deps Deps, clock string) (*Queue, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check queue: %w", err)
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	db, where, err := connect(cfg)
	if err != nil {
		return nil, fmt.Errorf("open queue: %w", err)
	}
	q := &Queue{
		cfg: cfg, deps: deps, db: db, id: rand.Text(), base: "{qr:" + cfg.Name + "}", scripts: newScripts(cfg, clock),
		claims: map[string]*claimant{}, held: map[string]*holding{}, gone: map[string]int64{}, watched: map[string]*topic{},
		readers: map[string][]chan struct{}{}, stop: make(chan struct{}), calls: exchanges{all: map[string]queue.CallStats{}},
	}
	if err := q.inspect(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open queue on %s: %w", where, err), db.Close())
	}
	return q, nil
}

// Run reads what is published and keeps time until ctx ends; then it closes the queue: claims and watches end, jobs that this
// process has submitted are cancelled, and its connections are freed.
func (q *Queue) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var parts sync.WaitGroup
	parts.Go(func() { q.listen(ctx) })
	parts.Go(func() { q.keep(ctx) })
	select {
	case <-ctx.Done():
	case <-q.stop:
	}
	stop()
	parts.Wait()
	return q.Close()
}

// farewell bounds what the queue still says when it closes.
const farewell = 2 * time.Second

// Close ends every call that waits and frees the connections. Run does it too.
func (q *Queue) Close() error {
	if !q.shut() {
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), farewell)
	defer stop()
	if _, err := q.run(ctx, "alive", q.id, 0); err != nil {
		q.deps.Log.WarnContext(ctx, "leave queue", "error", err)
	}
	q.waits.Wait()
	if err := q.db.Close(); err != nil {
		return fmt.Errorf("close queue: %w", err)
	}
	return nil
}

// shut marks the queue closed and lets go of all who wait. It reports whether it was open.
func (q *Queue) shut() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.closed = true
	close(q.stop)
	for id, h := range q.held {
		close(h.lost)
		delete(q.held, id)
	}
	for id, t := range q.watched {
		t.close()
		delete(q.watched, id)
	}
	return true
}
