package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Roles of a member.
const (
	RoleGateway = "gateway"
	RoleWorker  = "worker"
)

// Member is a process that takes part in a queue.
type Member struct {
	Role    string        `json:"role"`
	Name    string        `json:"name"`              // unique among those of its role
	Address string        `json:"address,omitempty"` // that a gateway's workers dial
	Version string        `json:"version"`
	Started time.Time     `json:"started"`
	Models  []MemberModel `json:"models,omitempty"` // that a worker hosts
}

// MemberModel is one model of a worker as it is now.
type MemberModel struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Workers int    `json:"workers"` // requests at once
	Busy    int    `json:"busy"`
	Context int    `json:"context"` // tokens of one request
}

func (m *Member) key() string { return m.Role + ":" + m.Name }

// Announce says that a member is there, for the time that hold is. drain is that somebody has asked it to: each question is told once.
func (q *Queue) Announce(ctx context.Context, m Member, hold time.Duration) (drain bool, err error) {
	about, err := json.Marshal(m)
	if err != nil {
		return false, fmt.Errorf("announce %s: %w", m.Name, err)
	}
	reply, err := q.run(ctx, "announce", m.key(), about, hold.Milliseconds())
	return number(reply) == 1, err
}

// Depart says that a member is gone.
func (q *Queue) Depart(ctx context.Context, m Member) error {
	_, err := q.run(ctx, "depart", m.key())
	return err
}

// Members lists who is there: gateways first, each by name.
func (q *Queue) Members(ctx context.Context) ([]Member, error) {
	reply, err := q.run(ctx, "members")
	if err != nil {
		return nil, err
	}
	var out []Member
	for _, about := range list(reply) {
		var m Member
		if json.Unmarshal([]byte(text(about)), &m) == nil { // one of another version may say what this one can't read
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(a.key(), b.key()) })
	return out, nil
}

// ErrNoMember is for a member that is not there.
var ErrNoMember = errors.New("nobody of this name is there")

// Drain asks a worker to finish what it runs, to take nothing more, and to end.
func (q *Queue) Drain(ctx context.Context, worker string) error {
	m := Member{Role: RoleWorker, Name: worker}
	reply, err := q.run(ctx, "drain", m.key())
	if err == nil && number(reply) != 1 {
		return fmt.Errorf("drain worker %q: %w", worker, ErrNoMember)
	}
	return err
}
