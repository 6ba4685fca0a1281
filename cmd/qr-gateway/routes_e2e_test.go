package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// replicaState is what the model list says of a replica.
type replicaState struct {
	Name, State, Reason string
	Ready               bool
	InFlight            int `json:"in_flight"`
}

// replicas asks the model list for those of the only model, and tells how long it took.
func (s *server) replicas(t *testing.T) (ready bool, all []replicaState, took time.Duration) {
	t.Helper()
	began := time.Now()
	res, err := http.Get(s.url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var list struct {
		Data []struct {
			QR struct {
				Ready    bool
				Replicas []replicaState
			}
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil || len(list.Data) != 1 {
		t.Fatalf("the list has %d models: %v", len(list.Data), err)
	}
	return list.Data[0].QR.Ready, list.Data[0].QR.Replicas, time.Since(began)
}

// killEngine ends the nth engine that was started, without a warning.
func (s *server) killEngine(t *testing.T, n int) {
	t.Helper()
	pids := s.enginePIDs(t)
	if n < 0 || n >= len(pids) {
		t.Fatalf("no pid of engine %d in the log:\n%s", n, s.log)
	}
	pid, err := strconv.Atoi(pids[n])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// TestReplicaKilled kills one of two engines under load: the other one begins what had not begun and goes on with what had, and every
// answer is what it is without a kill.
func TestReplicaKilled(t *testing.T) {
	t.Parallel()
	s := start(t, configFile(t, "    context: 1024\n    workers: 2\n    aliases: [other]\n    replicas: [{name: a}, {name: b}]\n"))
	const n = 6
	bodies, alone := make([]map[string]any, n), make([]string, n)
	for i := range bodies {
		bodies[i] = chat(fmt.Sprintf("Name %d things to do on day %d.", i%3+2, i), 12, map[string]any{"seed": i, "qr_decoder": "plain"})
		alone[i] = s.text(t, bodies[i])
		if i%2 == 0 {
			bodies[i]["model"] = "other"
		}
	}
	var all sync.WaitGroup
	for i, body := range bodies {
		all.Go(func() {
			if got, err := s.answer(t.Context(), body); err != nil || got != alone[i] {
				t.Errorf("request %d: %q, %v; want %q", i, got, err, alone[i])
			}
		})
	}
	s.killEngine(t, 0)
	all.Wait()
	s.waitReady(t, 2)
	for i, body := range bodies {
		if got := s.text(t, body); got != alone[i] {
			t.Errorf("request %d after the restart: %q, want %q", i, got, alone[i])
		}
	}
}

// waitReady waits until so many replicas can take requests.
func (s *server) waitReady(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, all, _ := s.replicas(t)
		ready := 0
		for _, r := range all {
			if r.Ready {
				ready++
			}
		}
		if ready == n {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("replicas are %+v, want %d ready", all, n)
		}
	}
}

// TestAllReplicasKilled holds that the model list answers at once and shows the dead, and that a request sent then is served when
// one is back.
func TestAllReplicasKilled(t *testing.T) {
	t.Parallel()
	s := start(t, configFile(t, "    context: 1024\n    workers: 1\n    replicas: [{name: a}, {name: b}]\n"))
	s.waitReady(t, 2)
	s.killEngine(t, 0)
	s.killEngine(t, 1)
	s.waitReady(t, 0)
	answered := make(chan error, 1)
	go func() {
		_, err := s.answer(t.Context(), chat("Name a colour.", 8, nil))
		answered <- err
	}()
	var times []time.Duration
	for range 20 {
		ready, all, took := s.replicas(t)
		times = append(times, took)
		if !ready && (len(all) != 2 || all[0].State != "restarting" || all[0].Reason == "") {
			t.Errorf("dead replicas are shown as %+v", all)
		}
	}
	slices.Sort(times)
	if median := times[len(times)/2]; median > 50*time.Millisecond {
		t.Errorf("the list takes %s with all engines dead", median)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
