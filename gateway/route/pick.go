package route

import (
	"crypto/sha256"
	"encoding/binary"
	"math"

	"qr-gateway/backends"
)

// candidate is a replica that could run a request now.
type candidate struct {
	name     string
	capacity float64
	inFlight float64 // requests, or as much work as so many
}

func (c candidate) load() float64 { return c.inFlight / c.capacity }

// candidate is r as it is to be picked by. An engine that says what it has to do is believed, but for requests that it hasn't seen yet.
func (r *replica) candidate(info *backends.Info) candidate {
	c := candidate{name: r.Name, capacity: r.capacity, inFlight: float64(r.inFlight)}
	if info.Load > 0 {
		c.inFlight = info.Load*float64(r.Workers) + float64(max(r.inFlight-info.Busy, 0))
	}
	return c
}

// reason says why a replica was picked.
type reason string

// The reasons.
const (
	reasonOnly     reason = "only"     // there was no other
	reasonLoad     reason = "load"     // the less loaded of two
	reasonSticky   reason = "sticky"   // has the beginning of the prompt
	reasonSpread   reason = "spread"   // the one that has it was too loaded
	reasonFailover reason = "failover" // another has failed
)

// reasons lists those that there are, for metrics.
func reasons() []reason {
	return []reason{reasonOnly, reasonLoad, reasonSticky, reasonSpread, reasonFailover}
}

// pick chooses one of all, which must not be empty. Without a key, two are drawn by their capacity, and the less loaded one is taken, the first
// where they are even. With a key the first is the one that keeps what begins alike, and it may be loaded more by slack.
func pick(all []candidate, k *key, slack float64, dice func() float64) (int, reason) {
	if len(all) == 1 {
		return 0, reasonOnly
	}
	if k == nil {
		at, _ := lighter(all, draw(all, -1, dice), 0, dice)
		return at, reasonLoad
	}
	at, stays := lighter(all, home(all, *k), slack, dice)
	if !stays {
		return at, reasonSpread
	}
	return at, reasonSticky
}

// lighter compares first with another one, drawn by capacity, and takes the less loaded, where first may be loaded more by slack.
func lighter(all []candidate, first int, slack float64, dice func() float64) (at int, stays bool) {
	second := draw(all, first, dice)
	if all[first].load() > all[second].load()+slack {
		return second, false
	}
	return first, true
}

// draw takes one by chance, by capacity, but for the one at not.
func draw(all []candidate, not int, dice func() float64) int {
	total, last := 0.0, 0
	for i, c := range all {
		if i != not {
			total += c.capacity
			last = i
		}
	}
	at := dice() * total
	for i, c := range all {
		if i == not {
			continue
		}
		if at -= c.capacity; at < 0 {
			return i
		}
	}
	return last // rounding
}

// home is where requests with a key go: weighted rendezvous hashing. Each candidate has its turn in proportion to its capacity, and when one
// goes or comes, only the keys that it had or gets change their home.
func home(all []candidate, k key) int {
	best, at := math.Inf(-1), 0
	for i, c := range all {
		if score := -c.capacity / math.Log(k.uniform(c.name)); score > best {
			best, at = score, i
		}
	}
	return at
}

// uniform is a number in (0, 1) that the key and a name make.
func (k key) uniform(name string) float64 {
	sum := sha256.Sum256(append(k[:], name...))
	return (float64(binary.BigEndian.Uint64(sum[:8])>>12) + 0.5) / (1 << 52)
}
