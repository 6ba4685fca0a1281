// Package hub lends the sources of one process to others on the same machine. The gateway owns every configured source, with its policy and
// its health tests; each engine process draws from them over one gRPC stream on a private Unix socket. A device so has one owner, however
// many models share it, and replies are never mixed up: every draw has a number of its own, and the reply goes to who asked.
//
// [Server.Run] owns the socket and a goroutine per draw under way, and has ended all of them when it returns. [Client.Run] owns the
// connection and the one reader of its stream; [Source] values draw through it and are safe for concurrent use. design.md has the life of
// a draw.
package hub

import (
	"context"
	"fmt"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
	"qr-gateway/entropy/hub/hubpb"
)

// Limits of one stream. They keep a mistake of one engine from taking the memory of the gateway.
const (
	maxDraw    = 16 << 20 // bytes of one draw
	maxMessage = maxDraw + 1<<16
	maxFlight  = 1024 // draws of one engine at once
)

// Provider has the sources that a [Server] lends. It is safe for concurrent use.
type Provider interface {
	// Source finds a source by its configured name.
	Source(name string) (entropy.Source, bool)
	// Describe says what a source is. Where ask wants a calibration that has not been made yet, it is made now.
	Describe(ctx context.Context, name string, ask Blocks) (Description, error)
}

// Blocks are what a calibration is made of; the zero value wants none.
type Blocks struct {
	Count int
	Bytes int // of each
}

// Description is what an engine needs to know of a source.
type Description struct {
	Type        string // of the configuration, e.g. grpc
	Policy      string // strict, fallback or observe
	Can         entropy.Capabilities
	Ahead       bool               // it can be asked before the logits exist; filled in by the server
	Calibration *guard.Calibration // nil: none was asked for
}

func describe(d Description) *hubpb.DescribeResponse {
	res := &hubpb.DescribeResponse{
		Type: d.Type, Policy: d.Policy, Freshness: string(d.Can.Class), Device: d.Can.Device, Rate: d.Can.Rate,
		MaxDraw: uint64(max(d.Can.MaxDraw, 0)), Details: d.Can.Details, Number: d.Can.Number, Ahead: d.Ahead,
	}
	if c := d.Calibration; c != nil {
		res.Calibration = &hubpb.Calibration{
			Source: c.Source, Device: c.Device, WhenNs: nanos(c.When), BlockBytes: uint32(c.BlockBytes), Sums: c.Sums, Hash: c.Hash,
		}
	}
	return res
}

func described(res *hubpb.DescribeResponse) (Description, error) {
	d := Description{
		Type: res.Type, Policy: res.Policy, Ahead: res.Ahead,
		Can: entropy.Capabilities{
			Class: entropy.Class(res.Freshness), Device: res.Device, Rate: res.Rate, MaxDraw: int(res.MaxDraw),
			Details: res.Details, Number: res.Number,
		},
	}
	if c := res.Calibration; c != nil {
		var err error
		if d.Calibration, err = guard.NewCalibration(c.Source, c.Device, moment(c.WhenNs), int(c.BlockBytes), c.Sums); err != nil {
			return d, err
		}
		if d.Calibration.Hash != c.Hash {
			return d, fmt.Errorf("check calibration of %s: its hash is %.16s, and %.16s was sent", c.Source, d.Calibration.Hash, c.Hash)
		}
	}
	return d, nil
}

// nanos is a time as it travels; 0 is none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func moment(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
