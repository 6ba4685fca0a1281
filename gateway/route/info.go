package route

import (
	"slices"

	"github.com/sony/gobreaker/v2"

	"qr-gateway/backends"
)

// Info implements [backends.Backend]: the model as its replicas are together. It is ready when one of them is.
func (g *Group) Info() backends.Info {
	g.mu.Lock()
	defer g.mu.Unlock()
	views := make([]view, len(g.replicas))
	for i, r := range g.replicas {
		views[i] = g.look(r)
	}
	best := best(views)
	out := best.info
	out.Model = g.cfg.Model
	out.Ready, out.State, out.Reason = best.usable, best.state, best.reason
	out.Workers, out.Busy, out.Load = 0, 0, 0
	if best.usable {
		out.State, out.Reason = stateReady, ""
	}
	for i, r := range g.replicas {
		out.Workers += r.Workers
		out.Busy += r.inFlight
		out.Resumes = out.Resumes && (views[i].info.Resumes || !views[i].usable)
		if c := views[i].info.Context; c > 0 && (out.Context == 0 || c < out.Context) {
			out.Context = c // servers elsewhere may differ, and any of them may get the next request
		}
	}
	if len(g.replicas) > 1 {
		out.Replicas = g.describe(views)
		if !out.Ready {
			out.Reason = "no replica can take a request"
		}
	}
	return out
}

// best is the view that stands for all: of a replica that is usable, and of those one that can do all that a model's can.
func best(views []view) view {
	for _, w := range []want{{sampled: true}, {}} {
		if at := slices.IndexFunc(views, func(v view) bool { return v.usable && v.suits(w) }); at >= 0 {
			return views[at]
		}
	}
	return views[0]
}

func (g *Group) describe(views []view) []backends.ReplicaInfo {
	out := make([]backends.ReplicaInfo, len(views))
	for i, v := range views {
		r := g.replicas[i]
		out[i] = backends.ReplicaInfo{
			Name: r.Name, Backend: v.info.Backend, Ready: v.usable, State: v.state, Reason: v.reason, InFlight: r.inFlight, Workers: r.Workers,
			Unsampled: v.info.Unsampled,
		}
	}
	return out
}

// Stats are the books about one replica.
type Stats struct {
	Name      string
	InFlight  int
	Ready     bool
	Breaker   string            // closed, half-open or open
	Picks     map[string]uint64 // by reason
	Failures  uint64            // that the breaker counted
	Failovers uint64            // requests that went on to another replica
}

// Stats returns the books, in the order of the replicas.
func (g *Group) Stats() []Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Stats, len(g.replicas))
	for i, r := range g.replicas {
		v := g.look(r)
		s := Stats{
			Name: r.Name, InFlight: r.inFlight, Ready: v.usable, Breaker: r.breaker.State().String(),
			Picks: map[string]uint64{}, Failures: r.counts.failures, Failovers: r.counts.failovers,
		}
		for _, why := range reasons() {
			s.Picks[string(why)] = r.counts.picks[why]
		}
		out[i] = s
	}
	return out
}

// BreakerStates are the values of [Stats].Breaker.
func BreakerStates() []string {
	return []string{gobreaker.StateClosed.String(), gobreaker.StateHalfOpen.String(), gobreaker.StateOpen.String()}
}
