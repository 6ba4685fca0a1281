package link_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"qr-gateway/entropy/grpc/certs/certstest"
	"qr-gateway/gateway/link"
	"qr-gateway/gateway/link/linkpb"
)

// journal is a log that tests read.
type journal struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// refuses asserts that a worker is refused, and what each side says of it.
func refuses(t *testing.T, gateway func(c *link.Config), worker func(c *link.ClientConfig), client, server []string) {
	t.Helper()
	at, log := &journal{}, &journal{}
	s, _ := serveWith(t, link.Deps{Frames: newTaker(), Log: at.logger()}, gateway)
	c, _ := dial(t, link.ClientDeps{Log: log.logger()}, func(c *link.ClientConfig) {
		c.Patience = 300 * time.Millisecond
		worker(c)
	})
	err := c.Deliver(within(t), s.Addr().String(), last("a", 1))
	if !errors.Is(err, link.ErrNoLink) {
		t.Fatalf("Deliver = %v, want ErrNoLink", err)
	}
	for _, want := range client {
		if !strings.Contains(err.Error(), want) || !strings.Contains(log.String(), want) {
			t.Errorf("the worker is not told %q: %v\n%s", want, err, log)
		}
	}
	for _, want := range server {
		if !strings.Contains(at.String(), want) {
			t.Errorf("the gateway's log does not say %q:\n%s", want, at)
		}
	}
	if len(server) > 0 && s.Counts().Refused == 0 {
		t.Error("nobody was counted as refused")
	}
	if all := at.String() + log.String() + err.Error(); strings.Contains(all, secret) || strings.Contains(all, "-another-secret-") {
		t.Errorf("a secret was told: %s", all)
	}
	if len(s.Workers()) > 0 {
		t.Errorf("workers are %+v, want none", s.Workers())
	}
}

func TestSecretIsChecked(t *testing.T) {
	for name, c := range map[string]struct{ show, says string }{
		"another": {"an-another-secret-than-that", "the secret is not the gateway's"},
		"none":    {"", "the secret of the gateway is needed"},
		"longer":  {secret + "x", "the secret is not the gateway's"},
	} {
		t.Run(name, func(t *testing.T) {
			refuses(t, nil, func(cfg *link.ClientConfig) { cfg.Secret = c.show }, []string{c.says}, []string{"worker refused", "peer=127.0.0.1:", c.says})
		})
	}
}

func TestSecretFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := serve(t, newTaker(), func(c *link.Config) { c.Secret, c.SecretFile = "", file })
	c, _ := dial(t, link.ClientDeps{}, nil)
	if err := c.Deliver(within(t), s.Addr().String(), last("a", 1)); err != nil {
		t.Error(err)
	}
}

func TestVersionSkew(t *testing.T) {
	both := []string{`gateway g is version`, `v1.2.3`, `worker w is version`, `v2.0.0`}
	refuses(t, nil, func(c *link.ClientConfig) { c.Version = "v2.0.0" }, both, both)
}

// stranger is a gateway of another release: it welcomes everybody.
type stranger struct {
	linkpb.UnimplementedLinkServer
	first *linkpb.FromGateway
}

func (s *stranger) Connect(stream linkpb.Link_ConnectServer) error {
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(s.first); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// TestWorkerChecksToo has gateways that don't refuse what they should, or don't keep to the protocol.
func TestWorkerChecksToo(t *testing.T) {
	for name, c := range map[string]struct {
		first *linkpb.FromGateway
		want  string
	}{
		"schema": {&linkpb.FromGateway{What: &linkpb.FromGateway_Welcome{Welcome: &linkpb.Welcome{Gateway: "other", Version: "v1.2.3", Schema: "00"}}}, "gateway other is version"},
		"room":   {&linkpb.FromGateway{What: &linkpb.FromGateway_Room{Room: &linkpb.Room{}}}, "protocol"},
		"empty":  {&linkpb.FromGateway{}, "protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			rpc := grpc.NewServer(grpc.WaitForHandlers(true))
			linkpb.RegisterLinkServer(rpc, &stranger{first: c.first})
			start(t, func(ctx context.Context) error {
				var serving sync.WaitGroup
				serving.Go(func() { _ = rpc.Serve(l) })
				<-ctx.Done()
				rpc.Stop()
				serving.Wait()
				return nil
			})
			worker, _ := dial(t, link.ClientDeps{}, func(c *link.ClientConfig) { c.Patience = 200 * time.Millisecond })
			err = worker.Deliver(within(t), l.Addr().String(), last("a", 1))
			if !errors.Is(err, link.ErrNoLink) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Deliver = %v, want ErrNoLink with %q", err, c.want)
			}
		})
	}
}

// TestStrangers has workers that don't keep to the protocol.
func TestStrangers(t *testing.T) {
	s, _ := serve(t, newTaker(), func(c *link.Config) { c.Handshake, c.Silence = 100*time.Millisecond, 200*time.Millisecond })
	hello := func() *linkpb.FromWorker {
		return &linkpb.FromWorker{What: &linkpb.FromWorker_Hello{Hello: &linkpb.Hello{Worker: "w", Version: "v1.2.3", Schema: link.Schema(), Instance: "i"}}}
	}
	unnamed := hello()
	unnamed.GetHello().Worker = "a name with spaces"
	frame := &linkpb.FromWorker{What: &linkpb.FromWorker_Frame{Frame: &linkpb.Frame{Job: "j", Epoch: 1, Seq: 1}}}
	part := &linkpb.FromWorker{What: &linkpb.FromWorker_Part{Part: &linkpb.Part{Data: []byte{0xff}, Last: true}}}
	for name, c := range map[string]struct {
		say  []*linkpb.FromWorker
		want codes.Code
	}{
		"nothing":              {nil, codes.DeadlineExceeded},
		"frame first":          {[]*linkpb.FromWorker{frame}, codes.InvalidArgument},
		"name":                 {[]*linkpb.FromWorker{unnamed}, codes.InvalidArgument},
		"hello twice":          {[]*linkpb.FromWorker{hello(), hello()}, codes.Unavailable},
		"broken part":          {[]*linkpb.FromWorker{hello(), part}, codes.Unavailable},
		"nothing after hello":  {[]*linkpb.FromWorker{hello()}, codes.Unavailable},
		"too large a message":  {[]*linkpb.FromWorker{hello(), {What: &linkpb.FromWorker_Part{Part: &linkpb.Part{Data: make([]byte, 2<<20)}}}}, codes.ResourceExhausted},
		"models are no models": {[]*linkpb.FromWorker{hello(), {What: &linkpb.FromWorker_Announce{Announce: &linkpb.Announce{Models: []byte("{")}}}}, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			cc, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer cc.Close()
			stream, err := linkpb.NewLinkClient(cc).Connect(metadata.AppendToOutgoingContext(within(t), "qr-link-secret", secret))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range c.say {
				_ = stream.Send(m) // where it fails the stream has ended, and tells why
			}
			for err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != c.want {
				t.Errorf("the stream ended with %v, want %v", err, c.want)
			}
			until(t, "it is forgotten", func() bool { return len(s.Workers()) == 0 })
		})
	}
}

// TestFlood has a worker that doesn't wait for room.
func TestFlood(t *testing.T) {
	k := newTaker()
	defer k.hold("j")()
	s, _ := serve(t, k, nil)
	cc, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	stream, err := linkpb.NewLinkClient(cc).Connect(metadata.AppendToOutgoingContext(within(t), "qr-link-secret", secret))
	if err != nil {
		t.Fatal(err)
	}
	hello := &linkpb.Hello{Worker: "w", Schema: link.Schema(), Instance: "i"}
	err = stream.Send(&linkpb.FromWorker{What: &linkpb.FromWorker_Hello{Hello: hello}})
	for seq := int64(1); seq < 100 && err == nil; seq++ {
		f := &linkpb.Frame{Job: "j", Epoch: 1, Seq: seq, What: &linkpb.Frame_Event{Event: []byte("{}")}}
		err = stream.Send(&linkpb.FromWorker{What: &linkpb.FromWorker_Frame{Frame: f}})
	}
	for err = nil; err == nil; {
		_, err = stream.Recv()
	}
	if !strings.Contains(err.Error(), "more than 32 frames") {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestTwoWorkersOfOneName(t *testing.T) {
	s, _ := serve(t, newTaker(), nil)
	first, one := dial(t, link.ClientDeps{}, nil)
	owner := s.Addr().String()
	if err := first.Deliver(within(t), owner, last("a", 1)); err != nil {
		t.Fatal(err)
	}
	second, _ := dial(t, link.ClientDeps{}, nil)
	if err := second.SetGateways([]string{owner}); err != nil {
		t.Fatal(err)
	}
	until(t, "the second is refused", func() bool {
		g := second.Gateways()[0]
		return !g.Up && strings.Contains(g.Reason, "a worker w is connected from 127.0.0.1:")
	})
	if err := first.Deliver(within(t), owner, last("b", 1)); err != nil {
		t.Errorf("the first one suffers: %v", err)
	}
	one.stop()
	if err := second.Deliver(within(t), owner, last("c", 1)); err != nil {
		t.Errorf("the second after the first: %v", err)
	}
}

func TestTLS(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	ca := certstest.NewCA(t, dir, "ca", now.Add(-time.Hour), now.Add(time.Hour))
	other := certstest.NewCA(t, dir, "other", now.Add(-time.Hour), now.Add(time.Hour))
	gateway := ca.Issue(t, "gateway", now.Add(-time.Hour), now.Add(time.Hour))
	worker := ca.Issue(t, "worker", now.Add(-time.Hour), now.Add(time.Hour))
	foreign := other.Issue(t, "foreign", now.Add(-time.Hour), now.Add(time.Hour))
	plain := func(c *link.Config) { c.TLSCert, c.TLSKey = gateway.Cert, gateway.Key }
	mutual := func(c *link.Config) { plain(c); c.TLSClientCA, c.Secret = ca.File, "" }
	for name, c := range map[string]struct {
		gateway func(c *link.Config)
		worker  func(c *link.ClientConfig)
	}{
		"tls": {plain, func(c *link.ClientConfig) { c.TLSCA = ca.File }},
		"mutual": {mutual, func(c *link.ClientConfig) {
			c.TLSCA, c.TLSCert, c.TLSKey, c.Secret = ca.File, worker.Cert, worker.Key, ""
		}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newTaker()
			s, _ := serve(t, k, c.gateway)
			w, _ := dial(t, link.ClientDeps{}, c.worker)
			if err := send(within(t), w, s.Addr().String(), "a", 50); err != nil {
				t.Fatal(err)
			}
			whole(t, k.frames(t, "a", 50), 50)
		})
	}
	t.Run("wrong authority", func(t *testing.T) {
		refuses(t, plain, func(c *link.ClientConfig) { c.TLSCA = other.File }, []string{"certificate signed by unknown authority"}, nil)
	})
	t.Run("wrong name", func(t *testing.T) {
		refuses(t, plain, func(c *link.ClientConfig) { c.TLSCA, c.TLSServerName = ca.File, "else.where" }, []string{"else.where"}, nil)
	})
	t.Run("no TLS", func(t *testing.T) {
		refuses(t, plain, func(*link.ClientConfig) {}, nil, []string{"worker refused", "first record does not look like a TLS handshake"})
	})
	t.Run("no certificate", func(t *testing.T) {
		refuses(t, mutual, func(c *link.ClientConfig) { c.TLSCA = ca.File }, nil, []string{"worker refused", "peer=127.0.0.1:", "client didn't provide a certificate"})
	})
	t.Run("foreign certificate", func(t *testing.T) {
		refuses(t, mutual, func(c *link.ClientConfig) { c.TLSCA, c.TLSCert, c.TLSKey = ca.File, foreign.Cert, foreign.Key }, nil, []string{"worker refused", "certificate"})
	})
}

func TestConfigsAreChecked(t *testing.T) {
	for want, change := range map[string]func(c *link.Config){
		"listen":                 func(c *link.Config) { c.Listen = "" },
		"reaches beyond":         func(c *link.Config) { c.Listen = "0.0.0.0:0" },
		"anybody":                func(c *link.Config) { c.Secret = "" },
		"advertise to host:port": func(c *link.Config) { c.Listen, c.Insecure = "0.0.0.0:0", true },
		"advertise: address":     func(c *link.Config) { c.Advertise = "nonsense" },
		"belong together":        func(c *link.Config) { c.TLSCert = "x" },
		"needs tls_cert":         func(c *link.Config) { c.TLSClientCA = "x" },
		"openssl rand":           func(c *link.Config) { c.Secret = "short" },
		"outside of ASCII":       func(c *link.Config) { c.Secret = "sixteen bytes with spaces" },
		"both given":             func(c *link.Config) { c.SecretFile = "x" },
		"no such file":           func(c *link.Config) { c.Secret, c.SecretFile = "", "/nowhere/secret" },
		"max_message":            func(c *link.Config) { c.MaxMessage = 1 },
		"silence":                func(c *link.Config) { c.Silence = 0 },
		"handshake":              func(c *link.Config) { c.Handshake = 0 },
		"prepare_wait":           func(c *link.Config) { c.Wait = -1 },
		"max_prepares":           func(c *link.Config) { c.MaxPrepares = 0 },
		"name of the gateway":    func(c *link.Config) { c.Gateway = "" },
		"there is a file of ano": func(c *link.Config) { c.Listen = "unix://" + os.Args[0] },
	} {
		cfg := link.DefaultConfig()
		cfg.Listen, cfg.Secret = "127.0.0.1:0", secret
		change(&cfg)
		if s, err := link.New(cfg, link.Deps{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want an error with %q", err, want)
			if err == nil {
				_ = s.Close()
			}
		}
	}
	for want, change := range map[string]func(c *link.ClientConfig){
		"name of the worker": func(c *link.ClientConfig) { c.Worker = "a b" },
		"another machine":    func(c *link.ClientConfig) { c.Gateways = []string{"192.0.2.1:1"} },
		"host:port":          func(c *link.ClientConfig) { c.Gateways = []string{"nonsense"} },
		"belong together":    func(c *link.ClientConfig) { c.TLSKey = "x" },
		"patience":           func(c *link.ClientConfig) { c.Patience = 0 },
		"twice the pulse":    func(c *link.ClientConfig) { c.Silence = c.Pulse },
		"backoff_min":        func(c *link.ClientConfig) { c.BackoffMin = 0 },
		"no such file":       func(c *link.ClientConfig) { c.TLSCA = "/nowhere/ca" },
	} {
		cfg := link.DefaultClientConfig()
		cfg.Worker = "w"
		change(&cfg)
		if _, err := link.NewClient(cfg, link.ClientDeps{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewClient = %v, want an error with %q", err, want)
		}
	}
}

// TestDialsNoStranger has a job name an owner that must not be sent anything in the clear.
func TestDialsNoStranger(t *testing.T) {
	c, _ := dial(t, link.ClientDeps{}, nil)
	if err := c.Deliver(within(t), "192.0.2.1:1", last("a", 1)); err == nil || !strings.Contains(err.Error(), "in the clear") {
		t.Errorf("Deliver = %v", err)
	}
}

// TestOwner is what jobs carry.
func TestOwner(t *testing.T) {
	unix := socket(t)
	for listen, c := range map[string]struct{ advertise, want string }{
		"127.0.0.1:0": {"", "127.0.0.1:"},
		"localhost:0": {"", "localhost:"},
		"0.0.0.0:0":   {"gateway.example:7", "gateway.example:7"},
		unix:          {"", unix},
	} {
		cfg := link.DefaultConfig()
		cfg.Listen, cfg.Secret, cfg.Insecure, cfg.Advertise = listen, secret, true, c.advertise
		s, err := link.New(cfg, link.Deps{})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Owner(); !strings.HasPrefix(got, c.want) || strings.HasSuffix(got, ":0") {
			t.Errorf("a gateway on %s is told to be at %s", listen, got)
		}
		_ = s.Close()
	}
}

// TestReasons is what the table of docs/cluster.md says of a worker's log.
func TestReasons(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	_ = closed.Close()
	dir, now := t.TempDir(), time.Now()
	ca := certstest.NewCA(t, dir, "ca", now.Add(-time.Hour), now.Add(time.Hour))
	plain, _ := serve(t, newTaker(), nil)
	for name, c := range map[string]struct {
		owner, want string
		change      func(c *link.ClientConfig)
	}{
		"nobody":   {nobody, "connection refused", func(*link.ClientConfig) {}},
		"no TLS":   {plain.Addr().String(), "first record does not look like a TLS handshake", func(c *link.ClientConfig) { c.TLSCA = ca.File }},
		"no route": {"unix:///nowhere/socket", "no such file", func(*link.ClientConfig) {}},
	} {
		worker, _ := dial(t, link.ClientDeps{}, func(cfg *link.ClientConfig) {
			cfg.Patience = 300 * time.Millisecond
			c.change(cfg)
		})
		err := worker.Deliver(within(t), c.owner, last("a", 1))
		if !errors.Is(err, link.ErrNoLink) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestOldSocketIsReplaced(t *testing.T) {
	address := socket(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: strings.TrimPrefix(address, "unix://"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := link.DefaultConfig()
	cfg.Listen = address
	if _, err := link.New(cfg, link.Deps{}); err == nil || !strings.Contains(err.Error(), "another process uses it") {
		t.Errorf("New = %v, want it to leave a living one alone", err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	s, err := link.New(cfg, link.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(strings.TrimPrefix(address, "unix://")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	_ = s.Close()
}
