package server_test

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"qr-gateway/entropy/entropypb"
	"qr-gateway/entropy/server"
)

// rows are what example servers of the published protocol answer; see the file's own conventions.
type row struct {
	RPC      string
	Needed   int32  `json:"bytes_needed"`
	Sequence string `json:"sequence_id"`
	Raw      string `json:"raw_request_hex"`
	Metadata map[string]string
	Status   string
	Length   int `json:"data_length"`
	Reply    reply
	Requests [][2]any
	Replies  []reply
	Before   int `json:"replies_before_end"`
	Right    struct{ Status string }
	Signal   string
}

type reply struct {
	Status   string
	Length   int    `json:"data_length"`
	Sequence string `json:"sequence_id"`
	Device   string `json:"device_id"`
}

type vectors struct {
	Cases []struct {
		Server string
		Rows   []row
	}
	Defects []row
}

// TestExampleServers: ours answers as those of the published protocol do, where they are right. Two rows differ on purpose: it has the
// health service and serves numbers.
func TestExampleServers(t *testing.T) {
	text, err := os.ReadFile("testdata/entropy_server.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	for _, c := range v.Cases {
		device := c.Rows[0].Reply.Device
		s := start(t, nil, func(c *server.Config) { c.Device = device })
		cc := dial(t, s.Addrs()[0])
		for i, r := range c.Rows {
			t.Run(fmt.Sprintf("%s/%d %s", c.Server, i, r.RPC), func(t *testing.T) { check(t, cc, r) })
		}
		for _, r := range v.Defects {
			t.Run(c.Server+"/defect", func(t *testing.T) {
				r.Status = r.Right.Status
				check(t, cc, r)
			})
		}
	}
}

func check(t *testing.T, cc *grpc.ClientConn, r row) {
	t.Helper()
	switch {
	case r.Signal != "": // the command line's: cmd/qr-gateway
	case r.RPC == "GetEntropy" && r.Raw != "":
		err := cc.Invoke(t.Context(), entropypb.EntropyService_GetEntropy_FullMethodName, r.Raw, new(entropypb.EntropyResponse), grpc.ForceCodecV2(hexCodec{}))
		wantStatus(t, err, r.Status)
	case r.RPC == "GetEntropy":
		checkUnary(t, cc, r)
	case r.RPC == "StreamEntropy":
		checkStream(t, cc, r)
	case r.RPC == "/grpc.health.v1.Health/Check":
		h, err := grpc_health_v1.NewHealthClient(cc).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil || h.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health: %v, %v; want SERVING, where the examples have none", h, err)
		}
	case r.RPC == "/qr_purity.PurityService/GetDraw":
		d, err := entropypb.NewPurityServiceClient(cc).GetDraw(t.Context(), &entropypb.DrawRequest{SequenceId: 3})
		if err != nil || d.GetSequenceId() != 3 || !(d.GetU() > 0 && d.GetU() < 1) {
			t.Errorf("number: %v, %v; want one, where the examples have none", d, err)
		}
	default:
		t.Errorf("row of another kind: %+v", r)
	}
}

// hexCodec sends what is written in hexadecimal, be it a message or not.
type hexCodec struct{}

func (hexCodec) Name() string                         { return "proto" }
func (hexCodec) Unmarshal(mem.BufferSlice, any) error { return nil }
func (hexCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, err := hex.DecodeString(v.(string))
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func wantStatus(t *testing.T, err error, want string) {
	t.Helper()
	var c codes.Code
	if e := c.UnmarshalJSON([]byte(strconv.Quote(want))); e != nil {
		t.Fatal(e)
	}
	if status.Code(err) != c {
		t.Errorf("error %v, want %s", err, want)
	}
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func checkUnary(t *testing.T, cc *grpc.ClientConn, r row) {
	t.Helper()
	ctx, seq := t.Context(), int64(0)
	if r.Metadata != nil {
		ctx = metadata.NewOutgoingContext(ctx, metadata.New(r.Metadata))
		// Of these the row says no more than the length.
		r.Needed, r.Reply.Length, r.Reply.Sequence = int32(r.Length), r.Length, "0"
	}
	if r.Sequence != "" {
		seq = number(t, r.Sequence)
	}
	before := time.Now()
	got, err := entropypb.NewEntropyServiceClient(cc).GetEntropy(ctx, &entropypb.EntropyRequest{BytesNeeded: r.Needed, SequenceId: seq})
	if want := cmp.Or(r.Status, r.Reply.Status); want != "" {
		wantStatus(t, err, want)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	checkReply(t, got, r.Reply, before)
}

func checkReply(t *testing.T, got *entropypb.EntropyResponse, want reply, before time.Time) {
	t.Helper()
	made := time.Unix(0, got.GetGenerationTimestampNs())
	if len(got.GetData()) != want.Length || got.GetSequenceId() != number(t, want.Sequence) || want.Device != "" && got.GetDeviceId() != want.Device {
		t.Errorf("got %d bytes, %d, %s; want %+v", len(got.GetData()), got.GetSequenceId(), got.GetDeviceId(), want)
	}
	if made.Before(before.Round(0)) || made.After(time.Now()) {
		t.Errorf("made at %v, asked at %v", made, before)
	}
}

func checkStream(t *testing.T, cc *grpc.ClientConn, r row) {
	t.Helper()
	before := time.Now()
	s, err := entropypb.NewEntropyServiceClient(cc).StreamEntropy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range r.Requests {
		if err := s.Send(&entropypb.EntropyRequest{BytesNeeded: int32(q[0].(float64)), SequenceId: number(t, q[1].(string))}); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; ; n++ {
		var got *entropypb.EntropyResponse
		if got, err = s.Recv(); err != nil {
			break
		}
		if r.Replies != nil {
			checkReply(t, got, r.Replies[n], before)
		}
	}
	switch {
	case r.Status != "":
		wantStatus(t, err, r.Status)
		if n != r.Before {
			t.Errorf("%d replies before the end, want %d", n, r.Before)
		}
	case !errors.Is(err, io.EOF) || n != len(r.Replies):
		t.Errorf("%d replies, then %v", n, err)
	}
}
