package link_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"qr-gateway/backends"
	"qr-gateway/gateway/dispatch"
	"qr-gateway/gateway/link"
	"qr-gateway/sampler"
)

// everyKind are frames with all that frames can carry.
func everyKind() []dispatch.Frame {
	alpha := -0.25
	frames := []dispatch.Frame{
		{Event: backends.Event{Started: &backends.Started{Worker: 2, PromptTokens: 7, CachedTokens: 3, Content: 4}}},
		{Event: backends.Event{Content: "naïve <b>&\u2028 text", Tokens: []int32{1, 1 << 30}}},
		{Event: backends.Event{Reasoning: "thinking"}},
		{Event: backends.Event{Raw: json.RawMessage(`{ "big": 12345678901234567890,  "html": "<&>" }`)}},
		{Event: backends.Event{Started: &backends.Started{}, Raw: json.RawMessage(`{"a":1}`)}},
		{Event: backends.Event{}},
		{Err: &backends.Error{
			Kind: backends.KindLimited, Code: "c", Param: "p", Message: "m", Hint: "h", Err: errors.New("cause"), RetryAfter: 3 * time.Second, MayHaveRun: true,
		}},
		{Result: &backends.Result{
			Reason: backends.ReasonLength, Usage: backends.Usage{PromptTokens: 1, CompletionTokens: 2, CachedTokens: 1},
			Stats: backends.DecodeStats{
				Decoder: "lookahead", AlphaMin: &alpha, FlaggedTokens: map[string]int{"late": 1}, Replica: "r", Tries: 2,
				Records: []sampler.Record{{Step: 1, Token: 5}}, RecordsDropped: 3, PromptMS: 0.1,
			},
		}},
	}
	for i := range frames {
		frames[i].Job, frames[i].Epoch, frames[i].Seq = "job", 3, int64(i+1)
	}
	return frames
}

func byText(a, b error) bool { return a.Error() == b.Error() }

func TestFramesArriveAsTheyAre(t *testing.T) {
	for name, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": socket(t)} {
		t.Run(name, func(t *testing.T) {
			k := newTaker()
			s, _ := serve(t, k, func(c *link.Config) { c.Listen = address })
			owner := address
			if name == "tcp" {
				owner = s.Addr().String()
			}
			c, _ := dial(t, link.ClientDeps{}, nil)
			sink := c.For(owner)
			want := everyKind()
			for _, f := range want {
				if err := sink.Deliver(within(t), f); err != nil {
					t.Fatal(err)
				}
			}
			got := k.frames(t, "job", len(want))
			opts := cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateNaNs(), cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Err" && len(p) > 3 }, cmp.Comparer(byText))}
			if diff := cmp.Diff(want, got, opts); diff != "" {
				t.Errorf("frames (-sent +received):\n%s", diff)
			}
		})
	}
}

// TestLargeFrame sends more than one message of gRPC takes, while others go on.
func TestLargeFrame(t *testing.T) {
	k, c, p := pair(t, nil)
	text := strings.Repeat("four", 1<<19)
	var work sync.WaitGroup
	work.Go(func() {
		if err := send(within(t), c, p.addr(), "small", 200); err != nil {
			t.Error(err)
		}
	})
	f := dispatch.Frame{Job: "large", Epoch: 1, Seq: 1, Event: backends.Event{Content: text}}
	if err := c.Deliver(within(t), p.addr(), f); err != nil {
		t.Error(err)
	}
	if got := k.frames(t, "large", 1)[0].Event.Content; got != text {
		t.Errorf("%d bytes came, not as they were", len(got))
	}
	work.Wait()
	whole(t, k.frames(t, "small", 200), 200)
}

// TestSlowLine sends a message that takes longer than a silence may last.
func TestSlowLine(t *testing.T) {
	const silence = 600 * time.Millisecond
	k := newTaker()
	s, _ := serve(t, k, func(c *link.Config) { c.Silence = silence })
	p := newProxy(t, s.Addr().String())
	c, _ := dial(t, link.ClientDeps{}, func(c *link.ClientConfig) { c.Silence = silence })
	if err := c.Deliver(within(t), p.addr(), last("a", 1)); err != nil {
		t.Fatal(err)
	}
	p.slow()
	began := time.Now()
	large := last("large", 1)
	large.Result.Reason = strings.Repeat("x", 5<<20)
	if err := c.Deliver(within(t), p.addr(), large); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d < silence {
		t.Fatalf("it took %v only: the line is not slow", d)
	}
	if n := c.Counts().Links; n != 1 {
		t.Errorf("there were %d streams, want one", n)
	}
}

func TestTooLargeFrame(t *testing.T) {
	k := newTaker()
	s, _ := serve(t, k, func(c *link.Config) { c.MaxMessage = 1 << 20 })
	c, _ := dial(t, link.ClientDeps{}, func(c *link.ClientConfig) { c.MaxMessage = 2 << 20 })
	owner := s.Addr().String()
	f := dispatch.Frame{Job: "early", Epoch: 1, Seq: 1, Result: &backends.Result{Reason: strings.Repeat("x", 3<<19)}}
	for _, job := range []string{"early", "late"} { // before the gateway has told its limit, and after
		f.Job = job
		err := c.Deliver(within(t), owner, f)
		if e := as(t, err, backends.KindInternal); !errors.Is(err, link.ErrTooLarge) || e.Code != "answer_too_large" || !strings.Contains(e.Unwrap().Error(), "1048576") {
			t.Errorf("Deliver of %s = %v", job, err)
		}
	}
	if err := send(within(t), c, owner, "next", 3); err != nil {
		t.Error(err)
	}
	f.Event, f.Result, f.Job = backends.Event{Content: strings.Repeat("x", 2<<20)}, nil, "own limit"
	if err := c.Deliver(within(t), owner, f); !errors.Is(err, link.ErrTooLarge) {
		t.Errorf("Deliver over the worker's own limit = %v", err)
	}
}

// TestWindow holds a job's client: its run goes 32 frames ahead and no further.
func TestWindow(t *testing.T) {
	k, c, p := pair(t, nil)
	let := k.hold("slow")
	defer let()
	for seq := 1; seq <= 32; seq++ {
		if err := c.Deliver(within(t), p.addr(), content("slow", seq)); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeoutCause(within(t), 50*time.Millisecond, errors.New("enough"))
	defer cancel()
	if err := c.Deliver(short, p.addr(), content("slow", 33)); err == nil || err.Error() != "enough" {
		t.Fatalf("Deliver of frame 33 = %v, want its context's cause", err)
	}
	began := time.Now()
	if err := send(within(t), c, p.addr(), "quick", 500); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("500 frames of another job took %v", d)
	}
	let()
	if err := c.Deliver(within(t), p.addr(), last("slow", 33)); err != nil {
		t.Error(err)
	}
	whole(t, k.frames(t, "slow", 33), 33)
	until(t, "all is taken", func() bool { return c.Gateways()[0].Frames == 0 && c.Gateways()[0].Runs == 0 })
}

func TestLastFrameIsTaken(t *testing.T) {
	k, c, p := pair(t, nil)
	let := k.hold("a")
	ended := make(chan error, 1)
	go func() { ended <- c.Deliver(within(t), p.addr(), last("a", 1)) }()
	until(t, "the frame is under way", func() bool { all := c.Gateways(); return len(all) > 0 && all[0].Frames == 1 && all[0].Up })
	select {
	case err := <-ended:
		t.Fatalf("Deliver = %v before the frame was taken", err)
	default:
	}
	let()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestGone(t *testing.T) {
	k, c, p := pair(t, nil)
	k.set(func(k *taker) { k.gone["left"] = true })
	if err := c.Deliver(within(t), p.addr(), last("left", 1)); !errors.Is(err, dispatch.ErrGone) {
		t.Errorf("Deliver of a last frame = %v, want ErrGone", err)
	}
	var err error
	n := 0
	until(t, "the run is told", func() bool {
		n++
		err = c.Deliver(within(t), p.addr(), dispatch.Frame{Job: "left", Epoch: 2, Seq: int64(n), Event: backends.Event{Content: "x"}})
		return err != nil
	})
	if !errors.Is(err, dispatch.ErrGone) {
		t.Errorf("Deliver = %v, want ErrGone", err)
	}
	if err := send(within(t), c, p.addr(), "stays", 10); err != nil {
		t.Errorf("another job: %v", err)
	}
}

// TestLeavesWhileBlocked has a client leave whose run waits for room.
func TestLeavesWhileBlocked(t *testing.T) {
	k, c, p := pair(t, nil)
	let := k.hold("a")
	ended := make(chan error, 1)
	go func() { ended <- send(within(t), c, p.addr(), "a", 100) }()
	until(t, "the window is full", func() bool { all := c.Gateways(); return len(all) > 0 && all[0].Frames == 32 })
	k.set(func(k *taker) { k.gone["a"] = true })
	let()
	if err := <-ended; !errors.Is(err, dispatch.ErrGone) {
		t.Errorf("Deliver = %v, want ErrGone", err)
	}
}

// TestOneWay has everything lost in one direction, which no side is told of.
func TestOneWay(t *testing.T) {
	for name, upward := range map[string]bool{"to the gateway": true, "to the worker": false} {
		t.Run(name, func(t *testing.T) {
			k, c, p := pair(t, nil)
			if err := c.Deliver(within(t), p.addr(), last("first", 1)); err != nil {
				t.Fatal(err)
			}
			p.lose(upward)
			began := time.Now()
			if err := send(within(t), c, p.addr(), "a", 100); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d > 3*time.Second {
				t.Errorf("it took %v to notice, with a silence of 300ms", d)
			}
			whole(t, k.frames(t, "a", 100), 100)
		})
	}
}

// TestResultIsNotGone has the connection break after a last frame was taken and before the worker learns it. The job is over by then.
func TestResultIsNotGone(t *testing.T) {
	k, c, p := pair(t, nil)
	if err := c.Deliver(within(t), p.addr(), content("a", 1)); err != nil {
		t.Fatal(err)
	}
	k.frames(t, "a", 1)
	p.lose(false)
	ended := make(chan error, 1)
	go func() { ended <- c.Deliver(within(t), p.addr(), last("a", 2)) }()
	k.frames(t, "a", 2)
	k.set(func(k *taker) { k.gone["a"] = true })
	if err := <-ended; err != nil {
		t.Errorf("Deliver = %v, want nil: the frame had been taken", err)
	}
}

// TestGatewayRestarts has another process take the gateway's place: it knows nothing of the jobs.
func TestGatewayRestarts(t *testing.T) {
	address := socket(t)
	_, first := serve(t, newTaker(), func(c *link.Config) { c.Listen = address })
	c, _ := dial(t, link.ClientDeps{}, nil)
	if err := c.Deliver(within(t), address, last("a", 1)); err != nil {
		t.Fatal(err)
	}
	first.stop()
	if err := c.Deliver(within(t), address, content("b", 1)); err != nil {
		t.Fatal(err)
	}
	k := newTaker()
	k.set(func(k *taker) { k.gone["b"] = true })
	serve(t, k, func(c *link.Config) { c.Listen = address })
	if err := c.Deliver(within(t), address, last("b", 2)); !errors.Is(err, dispatch.ErrGone) {
		t.Errorf("Deliver = %v, want ErrGone", err)
	}
	if err := send(within(t), c, address, "c", 50); err != nil {
		t.Error(err)
	}
	whole(t, k.frames(t, "c", 50), 50)
}

// TestPatience has no gateway there, by a clock of its own.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := link.DefaultClientConfig()
		cfg.Worker = "w"
		c, err := link.NewClient(cfg, link.ClientDeps{})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var failed error
		for seq := 1; failed == nil; seq++ {
			if failed = c.Deliver(t.Context(), "127.0.0.1:1", content("a", seq)); failed != nil && seq != 33 {
				t.Errorf("frame %d failed, want 32 to find room", seq)
			}
		}
		if d := time.Since(began); d != cfg.Patience || !errors.Is(failed, link.ErrNoLink) {
			t.Errorf("Deliver = %v after %v, want ErrNoLink after %v", failed, d, cfg.Patience)
		}
		if e := as(t, failed, backends.KindLost); e.Code != "gateway_unreachable" {
			t.Errorf("its error for the client is %v", e)
		}
		if err := c.Deliver(t.Context(), "127.0.0.1:1", content("b", 1)); !errors.Is(err, link.ErrNoLink) || time.Since(began) != cfg.Patience {
			t.Errorf("the next run's Deliver = %v after %v, want ErrNoLink at once", err, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := errors.Join(c.Run(ctx)); err != nil {
			t.Error(err)
		}
		if err := c.Deliver(t.Context(), "127.0.0.1:1", content("c", 1)); !errors.Is(err, link.ErrClosed) {
			t.Errorf("Deliver after Run = %v, want ErrClosed", err)
		}
	})
}

// TestComesBack has the gateway away for longer than the patience lasts.
func TestComesBack(t *testing.T) {
	k, c, p := pair(t, func(c *link.ClientConfig) { c.Patience = 200 * time.Millisecond })
	if err := c.Deliver(within(t), p.addr(), last("a", 1)); err != nil {
		t.Fatal(err)
	}
	p.close(true)
	if err := send(within(t), c, p.addr(), "lost", 100); !errors.Is(err, link.ErrNoLink) {
		t.Errorf("Deliver = %v, want ErrNoLink", err)
	}
	if g := c.Gateways()[0]; g.Up || g.Reason == "" {
		t.Errorf("the link is %+v, want down with a reason", g)
	}
	p.close(false)
	until(t, "it is up again", up(c))
	if n := c.Counts(); n.Links < 2 || n.Expired != 1 || n.Frames < 33 {
		t.Errorf("the worker counts %+v", n)
	}
	if err := send(within(t), c, p.addr(), "b", 100); err != nil {
		t.Error(err)
	}
	whole(t, k.frames(t, "b", 100), 100)
}

func TestRunEndsWhatWaits(t *testing.T) {
	k := newTaker()
	defer k.hold("a")()
	s, _ := serve(t, k, nil)
	c, client := dial(t, link.ClientDeps{}, nil)
	ended := make(chan error, 1)
	go func() { ended <- send(within(t), c, s.Addr().String(), "a", 100) }()
	until(t, "the window is full", func() bool { all := c.Gateways(); return len(all) > 0 && all[0].Frames == 32 })
	client.stop()
	if err := <-ended; !errors.Is(err, link.ErrClosed) {
		t.Errorf("Deliver = %v, want ErrClosed", err)
	}
	until(t, "the worker has left", func() bool { return len(s.Workers()) == 0 })
}

// TestIdleLinkEnds has a gateway that is not among those a link is kept to.
func TestIdleLinkEnds(t *testing.T) {
	k, c, p := pair(t, func(c *link.ClientConfig) { c.Idle = 50 * time.Millisecond })
	for i := range 3 {
		job := fmt.Sprint("job", i)
		if err := send(within(t), c, p.addr(), job, 20); err != nil {
			t.Fatal(err)
		}
		whole(t, k.frames(t, job, 20), 20)
		until(t, "the link has ended", func() bool { return len(c.Gateways()) == 0 })
	}
}
