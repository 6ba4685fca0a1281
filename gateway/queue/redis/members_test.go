package redis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"qr-gateway/gateway/queue/queuetest"
	"qr-gateway/gateway/queue/redis"
)

func TestMembers(t *testing.T) {
	r := &rig{url: serve(t).url()}
	q := start(t, r.config(queuetest.Wide()))
	gateway := redis.Member{Role: redis.RoleGateway, Name: "g", Address: "10.0.0.1:7070", Version: "v1"}
	worker := redis.Member{
		Role: redis.RoleWorker, Name: "w", Version: "v1", Started: time.Unix(1700000000, 0).UTC(),
		Models: []redis.MemberModel{{ID: "m", State: "ready", Workers: 4, Busy: 1, Context: 2048}},
	}
	for _, m := range []redis.Member{worker, gateway} {
		if drain, err := q.Announce(t.Context(), m, 3*time.Second); drain || err != nil {
			t.Fatalf("announce %s: %v, %v", m.Name, drain, err)
		}
	}
	members(t, q, gateway, worker)
	if err := q.Drain(t.Context(), "w"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} { // each question is told once
		if drain, err := q.Announce(t.Context(), worker, 3*time.Second); drain != want || err != nil {
			t.Errorf("announce: drain %v, %v, want %v", drain, err, want)
		}
	}
	if err := q.Drain(t.Context(), "x"); !errors.Is(err, redis.ErrNoMember) {
		t.Errorf("drain of nobody: %v", err)
	}
	if err := q.Depart(t.Context(), gateway); err != nil {
		t.Fatal(err)
	}
	members(t, q, worker)
	advance(t, q, 4*time.Second)
	members(t, q)
	if err := q.Drain(t.Context(), "w"); !errors.Is(err, redis.ErrNoMember) {
		t.Errorf("drain of one that was not heard of for long: %v", err)
	}
}

func members(t *testing.T, q *redis.Queue, want ...redis.Member) {
	t.Helper()
	got, err := q.Members(t.Context())
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}
