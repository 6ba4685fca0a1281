package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/sidecar/sidecartest"
	"qr-gateway/backends/vllm/sidecarpb"
	"qr-gateway/backends/vllm/wire"
	"qr-gateway/entropy/grpc/certs/certstest"
)

const sharedSecret = "0123456789abcdef0123456789abcdef"

// client runs a client of r until the test ends.
func (r *running) client(t *testing.T, change func(*ClientConfig)) *Client {
	t.Helper()
	cfg := DefaultClientConfig()
	cfg.Secret, cfg.Connect = sharedSecret, patience
	if a, ok := r.Addr().(*net.TCPAddr); ok {
		cfg.Address = fmt.Sprintf("localhost:%d", a.Port)
	}
	if change != nil {
		change(&cfg)
	}
	c, err := NewClient(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

func withRPC(cfg *Config, _ *Deps) { cfg.Listen, cfg.Secret = "127.0.0.1:0", sharedSecret }

// talk is a plugin's stream over gRPC.
type talk struct {
	t      *testing.T
	stream sidecarpb.Sidecar_SessionClient
}

func (k talk) send(frame []byte) {
	k.t.Helper()
	if err := k.stream.Send(fromFrame(frame)); err != nil {
		k.t.Fatal(err)
	}
}

func (k talk) read() wire.Frame {
	k.t.Helper()
	m, err := k.stream.Recv()
	if err != nil {
		k.t.Fatal(err)
	}
	f, err := toFrame(m)
	if err != nil {
		k.t.Fatal(err)
	}
	return f
}

func (k talk) step(seq uint64, flags uint8, row wire.Shown) wire.Answer {
	k.t.Helper()
	k.send(wire.AppendStep(nil, seq, flags, []wire.Shown{row}))
	f := k.read()
	got, err := wire.ParseChoice(nil, f.Header, f.Body)
	if err != nil || len(got) != 1 {
		k.t.Fatalf("%d answers, %v", len(got), err)
	}
	return got[0]
}

func (c *Client) talk(t *testing.T, hello wire.Hello) talk {
	t.Helper()
	ctx, cancel := context.WithTimeout(c.with(context.Background()), patience)
	t.Cleanup(cancel)
	stream, err := c.api.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	k := talk{t, stream}
	frame, err := wire.AppendJSON(nil, wire.KindHello, hello)
	if err != nil {
		t.Fatal(err)
	}
	k.send(frame)
	return k
}

func hello(session string) wire.Hello {
	return wire.Hello{
		Protocol: wire.Protocol, Schema: wire.Hash(), Session: session, VLLM: "test", Runner: "v2", Rows: "full",
		Vocab: vocab, MaxRows: 4, TPSize: 1, Model: "tiny", MaxModelLen: 4096,
	}
}

// TestSessionOverGRPC holds that rows over gRPC get the tokens that they get over the socket, whole rows in the frame among them, and that a
// client reads what is chosen, and the records in the account.
func TestSessionOverGRPC(t *testing.T) {
	r := start(t, withRPC)
	c := r.client(t, nil)
	k := c.talk(t, hello("far"))
	if f := k.read(); f.Kind != wire.KindWelcome {
		t.Fatalf("%v, want welcome", f.Kind)
	}
	cfg := `{"qr_seed":11,"qr_diagnostic_mode":true}`
	f := follow(t, c, "g")
	k.send((&wire.Begin{Handle: 1, RID: "g", Config: []byte(cfg), Prompt: []int32{1, 2, 3}}).Append(nil))
	var rows [][]float32
	var got []int32
	for at := range 20 {
		row := logits(vocab, 6, at)
		rows = append(rows, row)
		whole := wire.Shown{Row: wire.Row{Handle: 1, Step: uint32(at), Form: wire.Inline}, Logits: row}
		shown := whole
		if at%2 == 0 {
			shown = sidecartest.Compact(1, at, row, r.cfg.Top)
		}
		a := k.step(uint64(at+1), 0, shown)
		if choice.Status(a.Status) == choice.Whole {
			a = k.step(uint64(at+1), wire.FlagRest, whole)
		}
		want(t, a, choice.Token)
		got = append(got, a.Token)
		if n := next(t, f); n.Step != at || n.Token != a.Token || n.Session != "far" {
			t.Fatalf("followed %+v, want token %d of step %d", n, a.Token, at)
		}
	}
	for i, token := range inline(t, cfg, []int32{1, 2, 3}, rows) {
		if got[i] != token {
			t.Fatalf("token %d is %d, want %d", i, got[i], token)
		}
	}
	s := finish(t, f)
	if s.Tokens != 20 || s.EntropySource != "seed" || len(s.Records) != 20 {
		t.Fatalf("account %+v", s)
	}
	for i, record := range s.Records {
		if record.Step != i || record.Token != got[i] {
			t.Errorf("record %d is of token %d of step %d, want token %d", i, record.Token, record.Step, got[i])
		}
	}
	if _, err := f.Next(context.Background()); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, want io.EOF", err)
	}
	k.send(wire.AppendStep(nil, 1, 0, []wire.Shown{sidecartest.Compact(1, 20, rows[0], r.cfg.Top)}))
	if f := k.read(); f.Kind != wire.KindRefuse {
		t.Errorf("a replayed step over gRPC: %v, want refuse", f.Kind)
	}
}

// TestEnginesOverGRPC holds that a client knows the plugins that are connected.
func TestEnginesOverGRPC(t *testing.T) {
	r := start(t, withRPC)
	c := r.client(t, nil)
	p := r.dial(t, func(o *sidecartest.Options) { o.Session = "near" })
	until(t, "the plugin is there", func() bool { e := c.Engines(); return len(e) == 1 && e[0].Session == "near" && e[0].Vocab == vocab })
	_ = p.Close()
	until(t, "the plugin is gone", func() bool { return len(c.Engines()) == 0 })
}

// until waits for what the test can't be told of.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !is(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// TestGuards holds who is let in.
func TestGuards(t *testing.T) {
	dir, from, to := t.TempDir(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	ca := certstest.NewCA(t, dir, "ca", from, to)
	server, ours := ca.Issue(t, "server", from, to), ca.Issue(t, "ours", from, to)
	stranger := certstest.NewCA(t, dir, "other", from, to).Issue(t, "stranger", from, to)
	r := start(t, func(cfg *Config, d *Deps) {
		withRPC(cfg, d)
		cfg.TLSCert, cfg.TLSKey, cfg.TLSClientCA = server.Cert, server.Key, ca.File
	})
	good := func(c *ClientConfig) {
		c.TLSCA, c.TLSCert, c.TLSKey, c.Connect = ca.File, ours.Cert, ours.Key, patience
	}
	for name, change := range map[string]func(*ClientConfig){
		"":                 good,
		"no secret":        func(c *ClientConfig) { good(c); c.Secret = "" },
		"another secret":   func(c *ClientConfig) { good(c); c.Secret = "another-secret-that-is-long" },
		"a stranger":       func(c *ClientConfig) { good(c); c.TLSCert, c.TLSKey = stranger.Cert, stranger.Key },
		"no TLS":           func(c *ClientConfig) { c.Connect = time.Second },
		"another's server": func(c *ClientConfig) { good(c); c.TLSCA = "" },
	} {
		c := r.client(t, change)
		_, err := c.Follow(context.Background(), "rid of "+name, 0)
		if (err == nil) != (name == "") {
			t.Errorf("%q: %v", name, err)
		}
		if e, ok := errors.AsType[*backends.Error](err); err != nil && (!ok || e.Kind != backends.KindUnavailable) {
			t.Errorf("%q: error %v of kind %T", name, err, err)
		}
	}
}

// TestTrailOutlivesTheSidecar holds that a client that follows goes on when the sidecar is started again.
func TestTrailOutlivesTheSidecar(t *testing.T) {
	sock := t.TempDir() + "/rpc.sock"
	r := start(t, func(cfg *Config, _ *Deps) { cfg.Listen = "unix://" + sock })
	c := r.client(t, func(c *ClientConfig) { c.Address, c.Secret = "unix://"+sock, "" })
	same := func(o *sidecartest.Options) { o.Session = "one" }
	p := r.dial(t, same)
	f := follow(t, c, "o")
	h := begin(t, p, "o", seeded)
	first := step(t, p, h, 0, logits(vocab, 1, 0))
	if n := next(t, f); n.Token != first.Token {
		t.Fatalf("followed %+v, want token %d", n, first.Token)
	}
	r.stop()
	r = startWith(t, r.cfg, r.deps)
	p = r.dial(t, same)
	h = begin(t, p, "o", seeded, first.Token)
	second := step(t, p, h, 1, logits(vocab, 1, 1))
	if n := next(t, f); n.Step != 1 || n.Token != second.Token {
		t.Fatalf("followed %+v, want token %d of step 1", n, second.Token)
	}
	if s := finish(t, f); len(s.ContinuedAt) != 1 || s.ContinuedAt[0] != 1 {
		t.Errorf("continued at %v, want 1", s.ContinuedAt)
	}
	if _, err := c.Follow(context.Background(), "o", 0); err == nil {
		t.Error("a spent rid can be followed")
	}
}

func TestConfigs(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"nowhere":   func(c *Config) { c.Socket = "" },
		"relative":  func(c *Config) { c.Socket = "s.sock" },
		"deadline":  func(c *Config) { c.Deadline = 0 },
		"top":       func(c *Config) { c.Top = 0 },
		"keep":      func(c *Config) { c.Keep = 0 },
		"requests":  func(c *Config) { c.Requests = 0 },
		"uid":       func(c *Config) { c.UIDs = []int{-1} },
		"open":      func(c *Config) { c.Listen = "127.0.0.1:0" },
		"clear":     func(c *Config) { c.Listen, c.Secret = "0.0.0.0:7", sharedSecret },
		"short":     func(c *Config) { c.Listen, c.Secret = "127.0.0.1:0", "short" },
		"half pair": func(c *Config) { c.Listen, c.Secret, c.TLSCert = "127.0.0.1:0", sharedSecret, "x" },
		"no file":   func(c *Config) { c.Listen, c.SecretFile = "127.0.0.1:0", "/nowhere" },
	} {
		cfg := DefaultConfig()
		cfg.Socket = t.TempDir() + "/s.sock"
		change(&cfg)
		if s, err := New(cfg, Deps{}); err == nil {
			t.Errorf("%s is taken", name)
			_ = s.Close()
		}
	}
	for name, change := range map[string]func(*ClientConfig){
		"no address": func(c *ClientConfig) { c.Address = "" },
		"clear":      func(c *ClientConfig) { c.Address = "example.org:7" },
		"half pair":  func(c *ClientConfig) { c.TLSKey = "x" },
		"backoff":    func(c *ClientConfig) { c.BackoffMax = 0 },
	} {
		cfg := DefaultClientConfig()
		cfg.Address = "localhost:7"
		change(&cfg)
		if _, err := NewClient(cfg, nil); err == nil {
			t.Errorf("client: %s is taken", name)
		}
	}
}

// TestSocketIsTakenOver holds that a dead sidecar's socket makes way, and a living one's does not.
func TestSocketIsTakenOver(t *testing.T) {
	r := start(t, nil)
	if s, err := New(r.cfg, r.deps); err == nil {
		t.Error("two sidecars have one socket")
		_ = s.Close()
	}
	p := r.dial(t, nil)
	want(t, step(t, p, begin(t, p, "s", seeded), 0, logits(vocab, 1, 0)), choice.Token)
}
