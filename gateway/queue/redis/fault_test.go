package redis_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/queuetest"
	"qr-gateway/gateway/queue/redis"
)

// soon is a queue whose leases are short and whose clock is the server's own.
func soon(url string) redis.Config {
	c := redis.DefaultConfig()
	c.URL, c.Config, c.Lease, c.Timeout = url, queuetest.Wide().Config, 1200*time.Millisecond, time.Second
	return c
}

// open runs a queue until the test ends.
func open(t *testing.T, c redis.Config) *redis.Queue {
	t.Helper()
	q, err := redis.Open(t.Context(), c, quiet())
	if err != nil {
		t.Fatal(err)
	}
	run(t, q)
	return q
}

func submit(t *testing.T, q queue.Submitter, id string) {
	t.Helper()
	if _, err := q.Submit(t.Context(), queue.Job{ID: id, Key: "k", Model: "m", Cost: 1, Payload: []byte("p")}); err != nil {
		t.Fatal(err)
	}
}

func claim(t *testing.T, q queue.Claimer) queue.Lease {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	l, err := q.Claim(ctx, queue.Offer{Node: "n", Models: []string{"m"}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func watch(t *testing.T, q queue.Submitter, id string) <-chan queue.Status {
	t.Helper()
	states, err := q.Watch(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return states
}

// until reads states up to one.
func until(t *testing.T, states <-chan queue.Status, want queue.State) queue.Status {
	t.Helper()
	limit := time.NewTimer(15 * time.Second)
	defer limit.Stop()
	var last queue.Status
	for {
		select {
		case s, open := <-states:
			if !open {
				t.Fatalf("the watch ended at %s, want %s", last.State, want)
			}
			if last = s; s.State == want {
				return s
			}
		case <-limit.C:
			t.Fatalf("still %s, want %s", last.State, want)
		}
	}
}

// TestTwoProcesses has a gateway and a node that share nothing but the server.
func TestTwoProcesses(t *testing.T) {
	s := serve(t)
	gateway, node := open(t, soon(s.url())), open(t, soon(s.url()))
	submit(t, gateway, "a")
	states := watch(t, gateway, "a")
	l := claim(t, node)
	until(t, states, queue.StateLeased)
	if err := gateway.Cancel(t.Context(), "a", "client left"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Lost:
	case <-time.NewTimer(time.Second).C: // before its lease is over
		t.Error("the node is not told of the cancel")
	}
	until(t, states, queue.StateCancelled)
}

// TestNodeDies: a lease nobody keeps up is over within two leases (twice that on a busy machine), and another node has the job.
func TestNodeDies(t *testing.T) {
	s := serve(t)
	gateway, node := open(t, soon(s.url())), open(t, soon(s.url()))
	submit(t, gateway, "a")
	first := claim(t, node)
	began := time.Now()
	second := claim(t, node)
	if d := time.Since(began); second.Epoch != first.Epoch+1 || d > 5*time.Second {
		t.Errorf("epoch %d after %d, %s later", second.Epoch, first.Epoch, d)
	}
}

// TestGatewayDies: the jobs of a gateway that is gone end within two leases.
func TestGatewayDies(t *testing.T) {
	s := serve(t)
	other := open(t, soon(s.url()))
	dead, err := redis.Open(t.Context(), soon(s.url()), quiet())
	if err != nil {
		t.Fatal(err)
	}
	submit(t, dead, "waits")
	states := watch(t, other, "waits")
	if s := until(t, states, queue.StateCancelled); !strings.Contains(s.Reason, "gateway") {
		t.Errorf("reason is %q", s.Reason)
	}
	if err := dead.Close(); err != nil {
		t.Error(err)
	}
}

// TestGatewayDiesButItsClientMayComeBack: a job with an idempotency key outlives the gateway that it came to.
func TestGatewayDiesButItsClientMayComeBack(t *testing.T) {
	s := serve(t)
	other := open(t, soon(s.url()))
	dead, err := redis.Open(t.Context(), soon(s.url()), quiet())
	if err != nil {
		t.Fatal(err)
	}
	job := queue.Job{ID: "kept", Key: "k", Model: "m", Cost: 1, IdempotencyKey: "once"}
	if _, err := dead.Submit(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	submit(t, dead, "lost")
	until(t, watch(t, other, "lost"), queue.StateCancelled) // the other one had its turn in the same sweep
	if l := claim(t, other); l.Job.ID != "kept" {
		t.Errorf("claimed %s, want the job that was kept", l.Job.ID)
	}
	if err := dead.Close(); err != nil {
		t.Error(err)
	}
}

// TestPause: while the server stands still nothing happens; when it goes on, those who hold leases get time to say so.
func TestPause(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := soon(s.url())
	c.Timeout = 300 * time.Millisecond
	q := open(t, c)
	submit(t, q, "a")
	states := watch(t, q, "a")
	l := claim(t, q)
	if err := q.Heartbeat(t.Context(), l, queue.Progress{Seq: 1}); err != nil {
		t.Fatal(err)
	}
	until(t, states, queue.StateStreaming)
	signal(t, s, syscall.SIGSTOP)
	<-time.NewTimer(3 * c.Lease).C
	if err := q.Heartbeat(t.Context(), l, queue.Progress{Seq: 2}); !errors.Is(err, queue.ErrUnavailable) {
		t.Errorf("Heartbeat to a server that stands still = %v, want ErrUnavailable", err)
	}
	signal(t, s, syscall.SIGCONT)
	<-time.NewTimer(c.Lease / 2).C
	eventually(t, func() bool { // the connections may be made anew
		err := q.Heartbeat(t.Context(), l, queue.Progress{Seq: 2})
		if errors.Is(err, queue.ErrFenced) {
			t.Fatalf("Heartbeat after it went on: %v", err)
		}
		return err == nil
	})
	if err := q.Settle(t.Context(), l, queue.Outcome{State: queue.StateDone}); err != nil {
		t.Error(err)
	}
	until(t, states, queue.StateDone)
}

func signal(t *testing.T, s *server, what syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(what); err != nil {
		t.Fatal(err)
	}
}

// TestForgetsStream: the server is emptied while an answer is under way: the run enters itself again, and goes on.
func TestForgetsStream(t *testing.T) {
	s := serve(t)
	q := open(t, soon(s.url()))
	submit(t, q, "a")
	l := claim(t, q)
	if err := q.Heartbeat(t.Context(), l, queue.Progress{Seq: 1}); err != nil {
		t.Fatal(err)
	}
	s.do(t, "FLUSHALL")
	if _, err := q.Watch(t.Context(), "a"); !errors.Is(err, queue.ErrUnknown) {
		t.Errorf("Watch = %v, want ErrUnknown", err)
	}
	if err := q.Heartbeat(t.Context(), l, queue.Progress{Seq: 2}); err != nil {
		t.Fatal(err)
	}
	states := watch(t, q, "a")
	if got := until(t, states, queue.StateStreaming); got.Epoch != l.Epoch {
		t.Errorf("epoch %d, want %d", got.Epoch, l.Epoch)
	}
	if err := q.Settle(t.Context(), l, queue.Outcome{State: queue.StateDone, Cost: 3}); err != nil {
		t.Fatal(err)
	}
	until(t, states, queue.StateDone)
}

// TestForgetsBeforeText: a run of which nobody has seen anything ends when its job is forgotten, for the gateway submits it again.
func TestForgetsBeforeText(t *testing.T) {
	s := serve(t)
	q := open(t, soon(s.url()))
	submit(t, q, "a")
	l := claim(t, q)
	s.do(t, "FLUSHALL")
	if err := q.Heartbeat(t.Context(), l, queue.Progress{}); !errors.Is(err, queue.ErrFenced) {
		t.Errorf("Heartbeat = %v, want ErrFenced", err)
	}
	<-l.Lost
}

// reader notes what a request sees.
type reader struct {
	mu   sync.Mutex // guards text
	text []string
}

func (c *reader) Queued(int, time.Duration) {}

func (c *reader) Event(e backends.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = append(c.text, e.Content)
	return nil
}

// TestForgetsWaiting has a dispatcher submit again what the server was emptied of, and the server killed and started again.
func TestForgetsWaiting(t *testing.T) {
	s := serve(t)
	q := open(t, soon(s.url()))
	d, err := dispatch.New(dispatch.DefaultConfig(), dispatch.Deps{Queue: q})
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	const n = 5
	seen := make([]reader, n)
	for i := range n {
		calls.Go(func() {
			job := dispatch.Job{ID: fmt.Sprint("r", i), Key: "k", Model: "m", Prepared: &backends.Prepared{
				Request: &backends.Request{ID: fmt.Sprint("r", i), Model: "m"}, Tokens: []int32{1}, MaxTokens: 1,
			}}
			if _, err := d.Do(t.Context(), job, &seen[i]); err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		})
	}
	waitFor(t, q, n)
	old := claim(t, q)
	s.do(t, "FLUSHALL")
	waitFor(t, q, n)
	for range n {
		l := claim(t, q)
		if l.Job.ID == old.Job.ID && l.Epoch <= old.Epoch+1 {
			t.Errorf("epoch %d of job %s could be mistaken for an old one", l.Epoch, l.Job.ID)
		}
		serveOne(t, q, d, l)
	}
	calls.Wait()
	for i := range seen {
		if len(seen[i].text) != 1 || seen[i].text[0] != "hello" {
			t.Errorf("request %d saw %q", i, seen[i].text)
		}
	}
}

// serveOne plays a node.
func serveOne(t *testing.T, q queue.Claimer, d *dispatch.Dispatcher, l queue.Lease) {
	t.Helper()
	err := errors.Join(
		q.Heartbeat(t.Context(), l, queue.Progress{Seq: 1}),
		d.Deliver(t.Context(), dispatch.Frame{Job: l.Job.ID, Epoch: l.Epoch, Seq: 1, Event: backends.Event{Content: "hello"}}),
		d.Deliver(t.Context(), dispatch.Frame{Job: l.Job.ID, Epoch: l.Epoch, Seq: 2, Result: &backends.Result{}}),
		q.Settle(t.Context(), l, queue.Outcome{State: queue.StateDone}),
	)
	if err != nil {
		t.Errorf("job %s: %v", l.Job.ID, err)
	}
}

// waitFor waits until so many jobs wait.
func waitFor(t *testing.T, q queue.Gauge, n int) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 15*time.Second)
	defer stop()
	for ctx.Err() == nil {
		s, err := q.Stats(ctx)
		if err == nil && s.Models["m"].Waiting == n {
			return
		}
		<-time.NewTimer(10 * time.Millisecond).C
	}
	t.Fatalf("there are never %d jobs", n)
}

// TestServerRestarts: an empty server comes back in the place of the one that was killed; claims and watches go on by themselves.
func TestServerRestarts(t *testing.T) {
	s := serve(t)
	c := soon(fmt.Sprintf("redis://127.0.0.1:%d/0", s.port))
	q := open(t, c)
	submit(t, q, "gone")
	states := watch(t, q, "gone")
	until(t, states, queue.StateQueued)
	got := make(chan queue.Lease, 1)
	s.kill(t)
	if _, err := q.Submit(t.Context(), queue.Job{ID: "x", Model: "m"}); !errors.Is(err, queue.ErrUnavailable) {
		t.Errorf("Submit = %v, want ErrUnavailable", err)
	}
	s.again(t)
	for range states { // it ends without a last state
	}
	go func() { got <- claim(t, q) }()
	for {
		if _, err := q.Submit(t.Context(), queue.Job{ID: "y", Model: "m", Payload: []byte("p")}); err == nil {
			break
		}
		<-time.NewTimer(20 * time.Millisecond).C
	}
	if l := <-got; l.Job.ID != "y" {
		t.Errorf("claimed %s", l.Job.ID)
	}
}

// TestClocks: what the clock of a machine says makes no difference; deadlines are turned into time that is left.
func TestClocks(t *testing.T) {
	s := serve(t)
	q := start(t, soon(s.url()))
	job := queue.Job{ID: "a", Key: "k", Model: "m", Payload: []byte("p"), Deadline: time.Now().Add(time.Minute)}
	if _, err := q.Submit(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if l := claim(t, q); time.Until(l.Job.Deadline) > time.Minute || time.Until(l.Job.Deadline) < 50*time.Second {
		t.Errorf("deadline in %s, want a minute", time.Until(l.Job.Deadline))
	}
}

// TestServerClockJumps: the server's clock jumps an hour ahead and back; leases that are kept up stay, and what waits goes on waiting.
func TestServerClockJumps(t *testing.T) {
	s := serve(t)
	q := start(t, soon(s.url()))
	submit(t, q, "a")
	l := claim(t, q)
	submit(t, q, "b")
	for _, jump := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
		if err := q.Skew(t.Context(), jump.Microseconds()); err != nil {
			t.Fatal(err)
		}
		if err := q.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := q.Heartbeat(t.Context(), l, queue.Progress{}); err != nil {
			t.Errorf("after a jump of %s: %v", jump, err)
		}
	}
	if next := claim(t, q); next.Job.ID != "b" {
		t.Errorf("claimed %s", next.Job.ID)
	}
}

func TestCloseFreesEverything(t *testing.T) {
	s := serve(t)
	q, err := redis.Open(t.Context(), soon(s.url()), redis.Deps{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	calls.Go(func() { _ = q.Run(context.Background()) })
	calls.Go(func() {
		if _, err := q.Claim(t.Context(), queue.Offer{Node: "n", Models: []string{"none"}}); !errors.Is(err, queue.ErrClosed) {
			t.Errorf("Claim = %v, want ErrClosed", err)
		}
	})
	submit(t, q, "a")
	states := watch(t, q, "a")
	entries, err := q.Read(t.Context(), "a", 0)
	if err != nil {
		t.Fatal(err)
	}
	for {
		if st, err := q.Stats(t.Context()); err == nil && st.Claims == 1 {
			break
		}
	}
	began := time.Now()
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	calls.Wait()
	for range states {
	}
	for range entries {
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("closing took %s", d)
	}
	if _, err := q.Submit(t.Context(), queue.Job{ID: "b", Model: "m"}); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("Submit = %v, want ErrClosed", err)
	}
}
