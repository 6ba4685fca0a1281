package grpc_test

import (
	"encoding/hex"
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc"
	"qr-gateway/entropy/server"
)

func TestNumber(t *testing.T) {
	address := serve(t, system(t), func(c *server.Config) { c.SourceID = "lane" })
	for _, mode := range modes {
		s := open(t, address, inMode(mode))
		last := uint64(0)
		for range 20 {
			n, err := s.Number(t.Context(), entropy.NumberRequest{SourceID: "lane", BlockBytes: 4096})
			if err != nil {
				t.Fatal(err)
			}
			if !(n.U > 0 && n.U < 1) || n.Bytes != 4096 || n.SourceID != "lane" || n.Integrator != "zscore_mean" || math.Abs(math.Erfc(-n.Z/math.Sqrt2)/2-n.U) > 1e-9 {
				t.Errorf("%s: %+v", mode, n)
			}
			b := n.Block
			if !b.Echoed || b.Sequence <= last || b.Arrived.Before(b.Requested) || b.ServerTime.Before(b.Requested.Round(0)) || b.Source != "remote" {
				t.Errorf("%s: block %+v after %d", mode, b, last)
			}
			last = b.Sequence
		}
		_, err := s.Number(t.Context(), entropy.NumberRequest{SourceID: "other"})
		wantKind(t, err, entropy.KindRefused, "there is no source")
	}
}

// TestWrongNumbers: what does not select is refused.
func TestWrongNumbers(t *testing.T) {
	reply := func(u, z float64) []byte {
		msg := protowire.AppendFixed64(protowire.AppendTag(nil, 1, protowire.Fixed64Type), math.Float64bits(u))
		return protowire.AppendFixed64(protowire.AppendTag(msg, 2, protowire.Fixed64Type), math.Float64bits(z))
	}
	for name, c := range map[string]struct {
		msg  []byte
		echo bool
		text string
	}{
		"zero":      {reply(0, 0), true, "has no u"},
		"one":       {reply(1, 0), true, "must lie between"},
		"negative":  {reply(-0.25, 0), true, "must lie between"},
		"NaN":       {reply(math.NaN(), 0), true, "must lie between"},
		"infinite":  {reply(math.Inf(1), 0), true, "must lie between"},
		"z is NaN":  {reply(0.5, math.NaN()), true, "z is NaN"},
		"no echo":   {reply(0.5, 0), false, ""},
		"other":     {protowire.AppendString(protowire.AppendTag(reply(0.5, 0), 5, protowire.BytesType), "spare"), true, `of source "spare", asked was "lane"`},
		"malformed": {[]byte{0x09, 1}, false, "malformed"},
	} {
		for _, mode := range []string{grpc.ModeUnary, grpc.ModeBidi} {
			address := scripted(t, func(e exchange) error {
				var req []byte
				if err := e.RecvMsg(&req); err != nil {
					return err
				}
				msg := c.msg
				if c.echo {
					msg = protowire.AppendVarint(protowire.AppendTag(msg, 3, protowire.VarintType), varint(req, 1))
				}
				e.send(msg)
				if mode == grpc.ModeBidi {
					<-e.Context().Done()
				}
				return nil
			})
			_, err := open(t, address, inMode(mode)).Number(t.Context(), entropy.NumberRequest{SourceID: "lane"})
			if entropy.KindOf(err) != entropy.KindProtocol {
				t.Errorf("%s/%s: %v (%s)", name, mode, err, hex.EncodeToString(c.msg))
			} else {
				wantKind(t, err, entropy.KindProtocol, c.text)
			}
		}
	}
}
