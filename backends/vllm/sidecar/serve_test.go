package sidecar

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"qr-gateway/backends"
	"qr-gateway/backends/supply"
	"qr-gateway/backends/vllm/choice"
	"qr-gateway/backends/vllm/sidecar/sidecartest"
	"qr-gateway/backends/vllm/wire"
	"qr-gateway/sampler"
)

const seeded = `{"qr_seed":7,"qr_temperature":1}`

// inline is what the llama worker does with the same rows: one stream, one noise, Next for each.
func inline(t *testing.T, cfg string, prompt []int32, rows [][]float32) []int32 {
	t.Helper()
	p, err := sampler.ParseParams([]byte(cfg))
	if err != nil {
		t.Fatal(err)
	}
	s := sampler.NewStream(len(rows[0]))
	if err := s.Begin(&p, prompt); err != nil {
		t.Fatal(err)
	}
	noise := sampler.NewSeeded(*p.Seed)
	var out []int32
	for _, row := range rows {
		d, err := s.Next(context.Background(), row, nil, noise)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, d.Token)
	}
	return out
}

// TestTokensAreTheSamplers holds that a seeded answer has the tokens that the llama worker's path gives, however the rows come, and that
// the one who follows reads the same.
func TestTokensAreTheSamplers(t *testing.T) {
	r := start(t, nil)
	for name, cfg := range map[string]string{
		"plain":     seeded,
		"truncated": `{"qr_seed":3,"qr_temperature":0.8,"qr_top_k":40,"qr_top_p":0.9,"qr_min_p":0.02}`,
		"greedy":    `{"qr_seed":3,"qr_temperature":0}`,
		"penalties": `{"qr_seed":9,"qr_repetition_penalty":1.3,"qr_frequency_penalty":0.5,"qr_presence_penalty":0.5,"qr_logit_bias":{"5":4}}`,
		"strategy":  `{"qr_seed":9,"qr_temperature_strategy":"hvh_drift"}`,
		"flat":      `{"qr_seed":4,"qr_temperature":2}`,
	} {
		for _, form := range []string{"compact", "full"} {
			t.Run(name+"/"+form, func(t *testing.T) {
				p := r.dial(t, nil)
				rid := name + form
				f := follow(t, r, rid)
				h := begin(t, p, rid, cfg)
				var rows [][]float32
				var got []int32
				for at := range 30 {
					row := logits(vocab, 1, at)
					rows = append(rows, row)
					var a wire.Answer
					if form == "compact" {
						a = step(t, p, h, at, row)
					} else {
						a = one(t, p, p.Shared(h, at, at%32, row))
					}
					want(t, a, choice.Token)
					got = append(got, a.Token)
					if c := next(t, f); c.Step != at || c.Token != a.Token || c.Session != p.Hello.Session {
						t.Fatalf("followed %+v, answered %d at %d", c, a.Token, at)
					}
				}
				ref := inline(t, cfg, []int32{1, 2, 3}, rows)
				for i := range ref {
					if got[i] != ref[i] {
						t.Fatalf("token %d is %d, want %d", i, got[i], ref[i])
					}
				}
				stats := finish(t, f)
				if stats.Tokens != 30 || stats.Decoder != "plain" || stats.Native != 0 || stats.FallbackTokens != 0 {
					t.Errorf("account %+v", stats)
				}
				if _, err := f.Next(context.Background()); !errors.Is(err, io.EOF) {
					t.Errorf("after the end: %v, want io.EOF", err)
				}
			})
		}
	}
}

func TestRepeatAndVoid(t *testing.T) {
	r := start(t, nil)
	p := r.dial(t, nil)
	f := follow(t, r, "a")
	h := begin(t, p, "a", `{"qr_diagnostic_mode":true}`)
	row, other := logits(vocab, 1, 0), logits(vocab, 2, 0)
	first := step(t, p, h, 0, row)
	for range 20 {
		if again := step(t, p, h, 0, row); again != first {
			t.Fatalf("the same row gave %v, then %v", first, again)
		}
	}
	if again := one(t, p, p.Shared(h, 0, 3, row)); again != first {
		t.Fatalf("the whole of the same row gave %v, the compact one %v", again, first)
	}
	if c := next(t, f); c.Void != 0 || c.Token != first.Token {
		t.Fatalf("followed %+v", c)
	}
	second := step(t, p, h, 0, other)
	want(t, second, choice.Token)
	if c := next(t, f); c.Step != 0 || c.Void != 1 || c.Token != second.Token {
		t.Fatalf("followed %+v", c)
	}
	want(t, step(t, p, h, 1, row), choice.Token)
	s := finish(t, f)
	if s.Tokens != 2 || s.Discarded != 1 || len(s.Records) != 2 || r.Stats().Voids != 1 {
		t.Errorf("%d tokens, %d discarded, %d records, %d voids; want 2, 1, 2, 1", s.Tokens, s.Discarded, len(s.Records), r.Stats().Voids)
	} else if s.Records[0].Step != 0 || s.Records[0].Token != second.Token {
		t.Errorf("the record of token 0 is %+v, want token %d", s.Records[0], second.Token)
	}
}

// TestVoidIsForgotten holds that a draw that came to nothing leaves no trace in what follows.
func TestVoidIsForgotten(t *testing.T) {
	r := start(t, nil)
	cfg := `{"qr_seed":5,"qr_repetition_penalty":1.5,"qr_frequency_penalty":1,"qr_temperature_strategy":"hvh_drift"}`
	var rows [][]float32
	for at := range 20 {
		rows = append(rows, logits(vocab, 4, at))
	}
	ref := inline(t, cfg, []int32{1, 2, 3}, rows)
	p := r.dial(t, nil)
	h := begin(t, p, "v", cfg)
	for at, row := range rows {
		want(t, one(t, p, p.Shared(h, at, 0, logits(vocab, 99, at))), choice.Token)
		if a := one(t, p, p.Shared(h, at, 0, row)); a.Token != ref[at] {
			t.Fatalf("token %d is %d, want %d", at, a.Token, ref[at])
		}
	}
}

func TestGapsAndSteps(t *testing.T) {
	r := start(t, nil)
	p := r.dial(t, nil)
	f := follow(t, r, "g")
	h := begin(t, p, "g", seeded)
	want(t, step(t, p, h, 0, logits(vocab, 1, 0)), choice.Token)
	want(t, step(t, p, h, 3, logits(vocab, 1, 3)), choice.Token) // 1 and 2 were chosen by others
	want(t, step(t, p, h, 1, logits(vocab, 1, 1)), choice.Unknown)
	want(t, step(t, p, h+1, 0, logits(vocab, 1, 1)), choice.Unknown)
	var got []choice.Status
	for range 4 {
		got = append(got, next(t, f).Status)
	}
	if got[0] != choice.Token || got[1] != choice.Native || got[2] != choice.Native || got[3] != choice.Token {
		t.Errorf("followed %v", got)
	}
	if s := finish(t, f); s.Tokens != 2 || s.Native != 2 {
		t.Errorf("%d tokens, %d native; want 2, 2", s.Tokens, s.Native)
	}
	want(t, step(t, p, h, 4, logits(vocab, 1, 4)), choice.Stop) // it has finished
	want(t, step(t, p, begin(t, p, "g", seeded), 0, logits(vocab, 1, 0)), choice.Stop)
	if _, err := r.Follow(context.Background(), "g", 0); err == nil || !strings.Contains(err.Error(), "finished") {
		t.Errorf("following a spent rid: %v", err)
	}
}

// TestBadRequests holds that what is wrong with one request ends that one with its reason, and no other.
func TestBadRequests(t *testing.T) {
	r := start(t, nil)
	p := r.dial(t, nil)
	good := begin(t, p, "good", seeded)
	broken := logits(vocab, 1, 0)
	broken[17] = float32(math.NaN())
	none := make([]float32, vocab)
	for i := range none {
		none[i] = negInf
	}
	for name, c := range map[string]struct {
		cfg  string
		row  []float32
		want choice.Status
		kind backends.Kind
		says string
	}{
		"no JSON":         {`{`, nil, choice.Stop, backends.KindInvalid, "qr_cfg"},
		"unknown key":     {`{"qr_nonsense":1}`, nil, choice.Stop, backends.KindInvalid, "qr_nonsense"},
		"out of range":    {`{"qr_top_p":7}`, nil, choice.Stop, backends.KindInvalid, "qr_top_p"},
		"two objects":     {`{}{}`, nil, choice.Stop, backends.KindInvalid, "qr_cfg"},
		"look ahead":      {`{"qr_decoder":"lookahead"}`, nil, choice.Stop, backends.KindInvalid, "qr_decoder plain"},
		"alpha":           {`{"qr_alpha":0.3}`, nil, choice.Stop, backends.KindInvalid, "qr_alpha"},
		"think ban":       {`{"qr_think_ban":true}`, nil, choice.Stop, backends.KindInvalid, "qr_think_ban"},
		"bias outside":    {`{"qr_logit_bias":{"100000":1}}`, nil, choice.Stop, backends.KindInvalid, "100000"},
		"too large":       {`{"qr_preset":"` + strings.Repeat("x", maxConfig) + `"}`, nil, choice.Stop, backends.KindInvalid, "65536"},
		"unknown source":  {`{"qr_entropy_source":"lab"}`, nil, choice.Stop, backends.KindInvalid, "lab"},
		"NaN":             {`{}`, broken, choice.Stop, backends.KindModel, "token 0"},
		"no legal token":  {`{}`, none, choice.Illegal, backends.KindInvalid, "no token left"},
		"empty rid's row": {seeded, nil, choice.Token, "", ""},
	} {
		row := c.row
		if row == nil {
			row = logits(vocab, 1, 0)
		}
		rid := "bad " + name
		f := follow(t, r, rid)
		h := begin(t, p, rid, c.cfg)
		a := step(t, p, h, 0, row)
		if choice.Status(a.Status) != c.want {
			t.Errorf("%s: %v, want %v", name, choice.Status(a.Status), c.want)
			continue
		}
		got := next(t, f)
		if c.kind != "" && (got.Err == nil || got.Err.Kind != c.kind || !strings.Contains(got.Err.Error(), c.says) || got.Status != c.want) {
			t.Errorf("%s: followed %v, %+v; want kind %s that says %q", name, got.Status, got.Err, c.kind, c.says)
		}
		if c.want == choice.Stop {
			want(t, step(t, p, h, 1, row), choice.Stop)
		}
		finish(t, f)
	}
	want(t, step(t, p, good, 0, logits(vocab, 1, 0)), choice.Token)
}

func TestBadRIDs(t *testing.T) {
	r := start(t, nil)
	p, q := r.dial(t, nil), r.dial(t, nil)
	row := logits(vocab, 1, 0)
	for _, rid := range []string{"", strings.Repeat("r", maxRID+1), "\xff"} {
		want(t, step(t, p, begin(t, p, rid, seeded), 0, row), choice.Stop)
		if _, err := r.Follow(context.Background(), rid, 0); err == nil {
			t.Errorf("%q can be followed", rid)
		}
	}
	h := begin(t, p, "mine", seeded)
	first := step(t, p, h, 0, row)
	want(t, first, choice.Token)
	want(t, step(t, q, begin(t, q, "mine", seeded), 0, row), choice.Stop)          // another engine
	want(t, step(t, p, begin(t, p, "mine", `{"qr_seed":8}`), 0, row), choice.Stop) // another request
	if again := step(t, p, h, 0, row); again != first {
		t.Errorf("the owner's row gave %v, then %v", first, again)
	}
	other := begin(t, p, "mine", seeded) // the engine itself, again
	if again := step(t, p, other, 0, row); again != first {
		t.Errorf("begun again it gave %v, want %v", again, first)
	}
	want(t, step(t, p, h, 1, row), choice.Stop) // its former handle
	if n := r.Stats().Rejected; n < 6 {
		t.Errorf("%d requests rejected, want 6 or more", n)
	}
}

// TestBadFrames holds that a frame that can't be ends its own connection, with the reason, and no other.
func TestBadFrames(t *testing.T) {
	r := start(t, nil)
	well := r.dial(t, nil)
	row := logits(vocab, 1, 0)
	for name, c := range map[string]struct {
		send func(p *sidecartest.Plugin, h uint32) []byte
		want string
	}{
		"unknown kind": {func(*sidecartest.Plugin, uint32) []byte { return wire.Header{Kind: 9}.Append(nil) }, wire.CodeKind},
		"hello again": {func(p *sidecartest.Plugin, _ uint32) []byte {
			b, _ := wire.AppendJSON(nil, wire.KindHello, p.Hello)
			return b
		}, wire.CodeKind},
		"oversized": {func(*sidecartest.Plugin, uint32) []byte {
			return wire.Header{Kind: wire.KindStep, Size: wire.MaxBody + 1}.Append(nil)
		}, wire.CodeOversized},
		"begin too short": {func(*sidecartest.Plugin, uint32) []byte {
			return append(wire.Header{Kind: wire.KindBegin, Size: 3}.Append(nil), 1, 2, 3)
		}, wire.CodeTruncated},
		"handle twice": {func(_ *sidecartest.Plugin, h uint32) []byte {
			return (&wire.Begin{Handle: h, RID: "x", Config: []byte("{}")}).Append(nil)
		}, wire.CodeForm},
		"replayed": {func(p *sidecartest.Plugin, h uint32) []byte {
			return wire.AppendStep(nil, p.Seq, 0, []wire.Shown{p.Compact(h, 0, row)})
		}, wire.CodeReplay},
		"rest of nothing": {func(p *sidecartest.Plugin, h uint32) []byte {
			return wire.AppendStep(nil, p.Seq+5, wire.FlagRest, []wire.Shown{p.Shared(h, 0, 0, row)})
		}, wire.CodeReplay},
		"row twice": {func(p *sidecartest.Plugin, h uint32) []byte {
			return wire.AppendStep(nil, p.Seq+1, 0, []wire.Shown{p.Compact(h, 1, row), p.Compact(h, 1, row)})
		}, wire.CodeForm},
		"slot outside": {func(p *sidecartest.Plugin, h uint32) []byte {
			return wire.AppendStep(nil, p.Seq+1, 0, []wire.Shown{{Row: wire.Row{Handle: h, Form: wire.Shared, Slot: 32}}})
		}, wire.CodeForm},
		"inline row": {func(p *sidecartest.Plugin, h uint32) []byte {
			return wire.AppendStep(nil, p.Seq+1, 0, []wire.Shown{{Row: wire.Row{Handle: h, Form: wire.Inline}, Logits: row}})
		}, wire.CodeForm},
		"history from nowhere": {func(*sidecartest.Plugin, uint32) []byte {
			return (&wire.Begin{Handle: 77, Step: math.MaxUint32, RID: "x", Config: []byte("{}")}).Append(nil)
		}, wire.CodeForm},
	} {
		p := r.dial(t, nil)
		h := begin(t, p, "f "+name, seeded)
		want(t, step(t, p, h, 0, row), choice.Token)
		if err := p.Send(c.send(p, h)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Read(); refusal(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if _, err := p.Read(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the connection goes on: %v", name, err)
		}
	}
	want(t, step(t, well, begin(t, well, "well", seeded), 0, row), choice.Token)
}

func TestTruncatedFrame(t *testing.T) {
	r := start(t, nil)
	p := r.dial(t, nil)
	frame := wire.AppendStep(nil, 1, 0, []wire.Shown{p.Compact(1, 0, logits(vocab, 1, 0))})
	if err := p.Send(frame[:len(frame)-1]); err != nil {
		t.Fatal(err)
	}
	if err := p.Conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Read(); refusal(err) != wire.CodeTruncated {
		t.Errorf("%v, want %s", err, wire.CodeTruncated)
	}
}

func TestHelloRefused(t *testing.T) {
	r := start(t, nil)
	for name, c := range map[string]struct {
		o    sidecartest.Options
		want string
	}{
		"version":    {sidecartest.Options{Spoil: func(h *wire.Hello) { h.Protocol = 2 }}, wire.CodeVersion},
		"schema":     {sidecartest.Options{Spoil: func(h *wire.Hello) { h.Schema = "0123456789abcdef" }}, wire.CodeVersion},
		"may shrink": {sidecartest.Options{Seals: 4 /* F_SEAL_GROW */}, wire.CodeHello},
		"too small":  {sidecartest.Options{Spoil: func(h *wire.Hello) { h.MaxRows *= 2 }}, wire.CodeHello},
		"no file":    {sidecartest.Options{NoMemory: true, Spoil: func(h *wire.Hello) { h.Stride = 4096 }}, wire.CodeHello},
	} {
		c.o.Vocab, c.o.MaxRows = vocab, 4
		if _, err := sidecartest.Dial(r.cfg.Socket, c.o); refusal(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if n := r.Stats().Refusals; n != 5 {
		t.Errorf("%d refusals, want 5", n)
	}
}

func TestOtherUser(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Socket, cfg.UIDs = t.TempDir()+"/s.sock", []int{4711}
	for uid, ok := range map[int]bool{4711: true, 4712: false} {
		s, err := New(cfg, Deps{Sources: supply.New(nil)})
		if err != nil {
			t.Fatal(err)
		}
		s.otherUser(uid)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		p, err := sidecartest.Dial(cfg.Socket, sidecartest.Options{Vocab: vocab, MaxRows: 4})
		switch {
		case ok && err != nil:
			t.Errorf("user %d: %v", uid, err)
		case !ok && refusal(err) != wire.CodePeer:
			t.Errorf("user %d: %v, want %s", uid, err, wire.CodePeer)
		}
		if p != nil {
			_ = p.Close()
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestTruncatedMemory holds that a plugin can't take the memory away that the sidecar reads.
func TestTruncatedMemory(t *testing.T) {
	r := start(t, nil)
	p := r.dial(t, nil)
	if err := p.Truncate(); err == nil {
		t.Fatal("the memory could be cut off")
	}
	h := begin(t, p, "m", seeded)
	want(t, one(t, p, p.Shared(h, 0, 0, logits(vocab, 1, 0))), choice.Token)
}
