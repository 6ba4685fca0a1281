package link

import "sync/atomic"

// Counts is what a gateway's links have done since the start.
type Counts struct {
	Links    uint64 // streams that were welcomed
	Refused  uint64 // that were not
	Frames   uint64 // delivered
	Gone     uint64 // runs that were told that nobody waits for them
	Prepares uint64 // requests that workers were asked to prepare
	Retries  uint64 // of those, on another worker
}

type counts struct{ links, refused, frames, gone, prepares, retries atomic.Uint64 }

// Counts returns the counters.
func (s *Server) Counts() Counts {
	c := &s.counts
	return Counts{
		Links: c.links.Load(), Refused: c.refused.Load(), Frames: c.frames.Load(), Gone: c.gone.Load(),
		Prepares: c.prepares.Load(), Retries: c.retries.Load(),
	}
}

// ClientCounts is what a worker's links have done since the start.
type ClientCounts struct {
	Links   uint64 // streams that gateways have welcomed
	Frames  uint64 // put into outboxes
	Resent  uint64 // sent again after a stream broke
	Expired uint64 // times that a gateway could not be reached for too long
}

type clientCounts struct{ links, frames, resent, expired atomic.Uint64 }

// Counts returns the counters.
func (c *Client) Counts() ClientCounts {
	n := &c.counts
	return ClientCounts{Links: n.links.Load(), Frames: n.frames.Load(), Resent: n.resent.Load(), Expired: n.expired.Load()}
}
