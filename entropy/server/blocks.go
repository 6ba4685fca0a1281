package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropypb"
)

// sequenceKey is the context's key of a request's number.
type sequenceKey struct{}

// SequenceOf returns the number that the caller gave the request for which a source is asked.
func SequenceOf(ctx context.Context) (int64, bool) {
	seq, ok := ctx.Value(sequenceKey{}).(int64)
	return seq, ok
}

var errStopping = status.Error(codes.Unavailable, "the server is stopping")

// blocks serves bytes.
type blocks struct {
	entropypb.UnimplementedEntropyServiceServer
	server *Server
}

// GetEntropy implements the service.
func (b *blocks) GetEntropy(ctx context.Context, req *entropypb.EntropyRequest) (*entropypb.EntropyResponse, error) {
	if !b.server.gate.enter() {
		return nil, errStopping
	}
	defer b.server.gate.leave()
	out, err := b.server.block(ctx, req)
	if err != nil {
		return nil, err
	}
	f := b.server.faults.next()
	return out, f.unary(ctx, b.server.faults, out)
}

// StreamEntropy implements the service, for callers that ask once and for those that ask on and on.
func (b *blocks) StreamEntropy(stream grpc.BidiStreamingServer[entropypb.EntropyRequest, entropypb.EntropyResponse]) error {
	return each(b.server, stream, func(req *entropypb.EntropyRequest) error { return b.answer(stream, req) })
}

// each answers the requests of a stream, one after the other, until it ends or the server stops.
func each[Req, Res any](s *Server, stream grpc.BidiStreamingServer[Req, Res], answer func(*Req) error) error {
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !s.gate.enter() {
			return errStopping
		}
		err = answer(req)
		switch open := s.gate.leave(); {
		case errors.Is(err, errCut):
			return nil
		case err != nil:
			return err
		case !open:
			return errStopping
		}
	}
}

func (b *blocks) answer(stream grpc.BidiStreamingServer[entropypb.EntropyRequest, entropypb.EntropyResponse], req *entropypb.EntropyRequest) error {
	out, err := b.server.block(stream.Context(), req)
	if err != nil {
		return err
	}
	f := b.server.faults.next()
	return f.stream(stream.Context(), b.server.faults, out, stream.Send)
}

// block makes one block.
func (s *Server) block(ctx context.Context, req *entropypb.EntropyRequest) (*entropypb.EntropyResponse, error) {
	n := int(req.GetBytesNeeded())
	if n < 1 || n > s.cfg.MaxBytes {
		return nil, status.Errorf(codes.InvalidArgument, "bytes_needed is %d: it must lie between 1 and %d", n, s.cfg.MaxBytes)
	}
	ctx = context.WithValue(ctx, sequenceKey{}, req.GetSequenceId())
	got, err := s.draw(ctx, n)
	if err != nil {
		return nil, err
	}
	device := s.cfg.Device
	if device == "" {
		device = got.Device
	}
	return &entropypb.EntropyResponse{
		Data: got.Bytes, SequenceId: req.GetSequenceId(), GenerationTimestampNs: madeAt(&got).UnixNano(), DeviceId: validText(device),
	}, nil
}

// madeAt is when bytes were made, as far as their source can tell.
func madeAt(b *entropy.Block) time.Time {
	if b.ServerTime.IsZero() {
		return b.Arrived
	}
	return b.ServerTime
}

// draw asks the source and makes a status of what it says.
func (s *Server) draw(ctx context.Context, n int) (entropy.Block, error) {
	buf := make([]byte, n) // the reply keeps it until it is sent
	b, err := s.deps.Source.Draw(ctx, buf)
	if ctx.Err() == nil {
		s.outage.note(err)
	}
	if b.Arrived.IsZero() { // a source that keeps no time
		b.Arrived = s.deps.Now()
	}
	switch {
	case err == nil && b.Fallback: // the protocol has no way to say so
		return b, status.Errorf(codes.FailedPrecondition, "the bytes come from a second choice, %s: they are not handed out", b.Source)
	case err == nil && b.Flags&^entropy.FlagDrift != 0: // nor this
		return b, status.Errorf(codes.FailedPrecondition, "the bytes are flagged (%s): they are not handed out", strings.Join(b.Flags.Names(), ", "))
	case err == nil && len(b.Bytes) == n:
		return b, nil
	case err == nil:
		return b, status.Errorf(codes.Internal, "the source gave %d bytes, asked for %d", len(b.Bytes), n)
	case ctx.Err() != nil:
		return b, status.FromContextError(ctx.Err()).Err()
	}
	return b, status.Error(codeOf(entropy.KindOf(err)), fmt.Sprintf("the source fails: %v", err))
}

// codeOf says by a gRPC code what can be done about an error.
func codeOf(k entropy.Kind) codes.Code {
	switch k {
	case entropy.KindQuota:
		return codes.ResourceExhausted
	case entropy.KindRefused, entropy.KindConfig, entropy.KindHealth:
		return codes.FailedPrecondition
	case entropy.KindTimeout:
		return codes.DeadlineExceeded
	case entropy.KindTransport, entropy.KindOpen, entropy.KindClosed:
		return codes.Unavailable
	default:
		return codes.Internal
	}
}

// draws serves numbers.
type draws struct {
	entropypb.UnimplementedPurityServiceServer
	server *Server
}

// GetDraw implements the service.
func (d *draws) GetDraw(ctx context.Context, req *entropypb.DrawRequest) (*entropypb.DrawResponse, error) {
	if !d.server.gate.enter() {
		return nil, errStopping
	}
	defer d.server.gate.leave()
	return d.server.number(ctx, req)
}

// StreamDraws implements the service.
func (d *draws) StreamDraws(stream grpc.BidiStreamingServer[entropypb.DrawRequest, entropypb.DrawResponse]) error {
	return each(d.server, stream, func(req *entropypb.DrawRequest) error {
		out, err := d.server.number(stream.Context(), req)
		if err != nil {
			return err
		}
		return stream.Send(out)
	})
}

// number integrates a block of the source.
func (s *Server) number(ctx context.Context, req *entropypb.DrawRequest) (*entropypb.DrawResponse, error) {
	n := int64(req.GetBlockBytes())
	if n == 0 {
		n = int64(s.cfg.NumberBytes)
	}
	if n > int64(s.cfg.MaxBytes) {
		return nil, status.Errorf(codes.InvalidArgument, "block_bytes is %d: it must lie between 0 and %d", n, s.cfg.MaxBytes)
	}
	if id := req.GetSourceId(); id != "" && id != s.cfg.SourceID {
		return nil, status.Errorf(codes.NotFound, "there is no source %q: this server has %q", id, s.cfg.SourceID)
	}
	b, err := s.draw(context.WithValue(ctx, sequenceKey{}, req.GetSequenceId()), int(n))
	if err != nil {
		return nil, err
	}
	u, z := integrate(b.Bytes)
	id := s.cfg.SourceID
	if id == "" {
		id = validText(b.Source)
	}
	return &entropypb.DrawResponse{
		U: u, Z: z, SequenceId: req.GetSequenceId(), GenerationTimestampNs: uint64(madeAt(&b).UnixNano()), SourceId: id,
		PurityLabel: string(b.Class), IntegratedBytes: uint32(n), Integrator: "zscore_mean",
	}, nil
}

// Mean and standard deviation of a uniform byte, and how far u stays from 0 and 1.
const (
	byteMean = 127.5
	byteStd  = 73.90027063549903 // sqrt((256^2-1)/12)
	margin   = 1e-10
)

// integrate makes a number of a block: the normal CDF of how far the mean lies from that of uniform bytes, in its standard errors.
func integrate(block []byte) (u, z float64) {
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	n := float64(len(block))
	z = (float64(sum)/n - byteMean) / (byteStd / math.Sqrt(n))
	return min(max(math.Erfc(-z/math.Sqrt2)/2, margin), 1-margin), z
}
