package hub

import (
	"context"
	"fmt"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/hub/hubpb"
)

// Source is a source of the server's, as an [entropy.Source]. It is a name and a client: making one costs nothing.
type Source struct {
	client *Client
	name   string
	ahead  bool
}

// Source finds a source of the server's by its configured name.
func (c *Client) Source(ctx context.Context, name string) (*Source, error) {
	d, err := c.Describe(ctx, name, Blocks{})
	if err != nil {
		return nil, err
	}
	return &Source{client: c, name: name, ahead: d.Ahead}, nil
}

// Draw implements [entropy.Source].
func (s *Source) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	if err := s.check(len(buf)); err != nil {
		return entropy.Block{}, err
	}
	r, err := s.ask(ctx, &hubpb.DrawRequest{Source: s.name, What: &hubpb.DrawRequest_Bytes{Bytes: uint32(len(buf))}})
	if err != nil {
		return entropy.Block{}, fmt.Errorf("draw %d bytes from %s: %w", len(buf), s.name, err)
	}
	return s.block(r, buf)
}

func (s *Source) check(n int) error {
	if n > maxDraw {
		return refused(s.name, fmt.Sprintf("%d bytes were asked for; one draw takes up to %d", n, maxDraw))
	}
	return nil
}

// block is the block of a reply, in the caller's buffer.
func (s *Source) block(r *hubpb.DrawReply, buf []byte) (entropy.Block, error) {
	if len(r.Data) != len(buf) {
		return entropy.Block{}, &entropy.Error{
			Kind: entropy.KindProtocol, Source: s.name, Message: fmt.Sprintf("%d bytes came, %d were asked for", len(r.Data), len(buf)),
		}
	}
	copy(buf, r.Data)
	b := unpackBlock(r.Block)
	b.Bytes = buf
	return b, nil
}

// ask sends a request, once there is a stream, and waits for the reply.
func (s *Source) ask(ctx context.Context, req *hubpb.DrawRequest) (*hubpb.DrawReply, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if until, ok := ctx.Deadline(); ok { // a second choice has to be made in time
			req.WithinUs = uint64(max(1, time.Until(until).Microseconds()))
		}
		if w := s.client.begin(req); w != nil {
			return s.client.wait(ctx, w, s.name)
		}
		if err := s.client.connected(ctx, s.name); err != nil {
			return nil, err
		}
	}
}

// Number implements [entropy.Numberer].
func (s *Source) Number(ctx context.Context, req entropy.NumberRequest) (entropy.Number, error) {
	r, err := s.ask(ctx, &hubpb.DrawRequest{Source: s.name, What: &hubpb.DrawRequest_Number{
		Number: &hubpb.NumberRequest{SourceId: req.SourceID, BlockBytes: uint32(max(req.BlockBytes, 0))},
	}})
	if err != nil {
		return entropy.Number{}, fmt.Errorf("draw number from %s: %w", s.name, err)
	}
	if r.Number == nil {
		return entropy.Number{}, &entropy.Error{Kind: entropy.KindProtocol, Source: s.name, Message: "a reply came without the number"}
	}
	return unpackNumber(r.Number, r.Block), nil
}

// Probe implements [entropy.Prober].
func (s *Source) Probe(ctx context.Context) (entropy.Capabilities, error) {
	d, err := s.client.Describe(ctx, s.name, Blocks{})
	return d.Can, err
}

// Begin implements [entropy.Ahead]. The ticket is nil where the source can't be asked ahead, or no stream is open.
func (s *Source) Begin(n int, nonce uint64) entropy.Ticket {
	if !s.ahead || s.check(n) != nil {
		return nil
	}
	w := s.client.begin(&hubpb.DrawRequest{
		Source: s.name, What: &hubpb.DrawRequest_Bytes{Bytes: uint32(n)}, Pipelined: true, Nonce: nonce,
	})
	if w == nil {
		return nil
	}
	return &ticket{source: s, call: w}
}

// ticket is a draw that was asked for ahead.
type ticket struct {
	source *Source
	call   *call
}

// Redeem implements [entropy.Ticket].
func (t *ticket) Redeem(ctx context.Context, buf []byte) (entropy.Block, error) {
	r, err := t.source.client.wait(ctx, t.call, t.source.name)
	if err != nil {
		return entropy.Block{}, fmt.Errorf("draw %d bytes from %s: %w", len(buf), t.source.name, err)
	}
	return t.source.block(r, buf)
}

// Drop implements [entropy.Ticket].
func (t *ticket) Drop() { t.source.client.drop(t.call) }
