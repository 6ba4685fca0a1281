package redis_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/redis"
)

// TestConformanceCluster runs the suite on a Cluster of one node, which refuses a script whose keys are not in one slot.
func TestConformanceCluster(t *testing.T) {
	t.Parallel()
	s := serve(t, "--cluster-enabled", "yes")
	s.do(t, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	c := s.client()
	defer func() { _ = c.Close() }()
	for field := ""; field != "ok"; {
		info := c.ClusterInfo(t.Context()).Val()
		if _, err := fmt.Sscanf(info, "cluster_state:%s", &field); err != nil {
			t.Fatal(err)
		}
	}
	says(t, refused(t, at(fmt.Sprintf("redis://127.0.0.1:%d/1", s.port))), "database")
	conformance(t, fmt.Sprintf("redis-cluster://127.0.0.1:%d", s.port), true, 4)
}

// TestSentinel: the master dies, its replica takes over, and the queue goes on there.
func TestSentinel(t *testing.T) {
	t.Parallel()
	master := serve(t)
	replica := serve(t, "--replicaof", fmt.Sprintf("127.0.0.1 %d", master.port))
	says(t, refused(t, at(fmt.Sprintf("redis://127.0.0.1:%d/0", replica.port))), "replica")
	db := master.client()
	defer func() { _ = db.Close() }()
	eventually(t, func() bool { // else the sentinel learns of the replica ten seconds later
		return strings.Contains(db.Info(t.Context(), "replication").Val(), "state=online")
	})
	c := soon(fmt.Sprintf("redis-sentinel://127.0.0.1:%d/0?master_name=mine", sentinel(t, master)))
	c.Lease = 30 * time.Second // the grace that follows is one lease, and a busy machine may need it for a heartbeat
	q := open(t, c)
	submit(t, q, "a")
	states := watch(t, q, "a")
	l := claim(t, q)
	if err := q.Heartbeat(t.Context(), l, queue.Progress{Seq: 1}); err != nil {
		t.Fatal(err)
	}
	until(t, states, queue.StateStreaming)
	eventually(t, func() bool { return inStep(db.Info(t.Context(), "replication").Val()) })
	signal(t, master, syscall.SIGSTOP)
	defer signal(t, master, syscall.SIGCONT)
	eventually(t, func() bool { return q.Heartbeat(t.Context(), l, queue.Progress{Seq: 2}) == nil })
	if err := q.Settle(t.Context(), l, queue.Outcome{State: queue.StateDone}); err != nil {
		t.Error(err)
	}
	until(t, states, queue.StateDone)
	submit(t, q, "b")
	if next := claim(t, q); next.Job.ID != "b" {
		t.Errorf("claimed %s", next.Job.ID)
	}
}

// inStep says whether the replica has what the master has.
func inStep(info string) bool {
	var at, have string
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, "master_repl_offset:"); ok {
			at = strings.TrimSpace(value)
		}
		if _, rest, ok := strings.Cut(line, ",offset="); ok {
			have, _, _ = strings.Cut(rest, ",")
		}
	}
	return at != "" && at == have
}

// eventually tries for as long as a failover may take.
func eventually(t *testing.T, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); {
		if f() {
			return
		}
		<-time.NewTimer(50 * time.Millisecond).C
	}
	t.Fatal("nobody took over")
}

// sentinel watches a master, and hands over after half a second of silence.
func sentinel(t *testing.T, master *server) int {
	t.Helper()
	dir, port := t.TempDir(), freePort(t)
	conf := filepath.Join(dir, "s.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor mine 127.0.0.1 %d 1\n", port, dir, master.port) +
		"sentinel down-after-milliseconds mine 500\nsentinel failover-timeout mine 3000\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{binary: master.binary, args: []string{conf, "--sentinel", "--loglevel", "warning"}}
	s.cmd = exec.Command(s.binary, s.args...)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.kill(t) })
	eventually(t, func() bool {
		db := master.client()
		defer func() { _ = db.Close() }()
		eventually(t, func() bool { // else the sentinel learns of the replica ten seconds later
			return strings.Contains(db.Info(t.Context(), "replication").Val(), "state=online")
		})
		c := soon(fmt.Sprintf("redis-sentinel://127.0.0.1:%d/0?master_name=mine", port))
		c.Name = "probe"
		q, err := redis.Open(t.Context(), c, quiet())
		if err != nil {
			return false
		}
		return q.Close() == nil
	})
	return port
}
