package link_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"qr-gateway/gateway/link"
)

// TestCuts is the law of the link: whatever happens to connections, each frame of each run arrives, once and in order.
func TestCuts(t *testing.T) {
	repeats := 0
	rapid.Check(t, func(rt *rapid.T) {
		d := drill{
			jobs: rapid.IntRange(1, 4).Draw(rt, "jobs"), frames: rapid.IntRange(1, 100).Draw(rt, "frames"),
			lag:   time.Duration(rapid.IntRange(0, 300).Draw(rt, "lag in us")) * time.Microsecond,
			blows: rapid.SliceOfN(rapid.IntRange(0, 7), 0, 4).Draw(rt, "blows"),
			gaps:  rapid.SliceOfN(rapid.IntRange(0, 5000), 4, 4).Draw(rt, "gaps in us"),
		}
		again, err := d.run(t)
		if err != nil {
			rt.Fatal(err)
		}
		repeats += again
	})
	if repeats == 0 {
		t.Error("no frame was sent again: the blows meet nothing")
	}
	t.Logf("%d frames were delivered again", repeats)
}

// blow does one of the things that networks do.
func (p *proxy) blow(kind int) {
	switch kind {
	case 0, 1, 2, 3, 4:
		p.cut()
	case 5, 6:
		p.lose(kind == 5)
	case 7:
		on := p.stall()
		<-time.After(time.Millisecond)
		on()
	}
}

// drill sends frames of several jobs while the network does harm.
type drill struct {
	jobs, frames int
	lag          time.Duration // of each Deliver of the gateway
	blows, gaps  []int
}

// run returns how many frames were delivered more than once.
func (d drill) run(t *testing.T) (repeats int, err error) {
	k := newTaker()
	k.lag = d.lag
	s, server := serve(t, k, func(c *link.Config) { c.Silence = 200 * time.Millisecond })
	p := newProxy(t, s.Addr().String())
	c, client := dial(t, link.ClientDeps{}, func(c *link.ClientConfig) { c.Pulse, c.Silence = 20*time.Millisecond, 60*time.Millisecond })
	var work errgroup.Group
	for i := range d.jobs {
		work.Go(func() error { return send(within(t), c, p.addr(), fmt.Sprint("job", i), d.frames) })
	}
	for i, kind := range d.blows {
		<-time.After(time.Duration(d.gaps[i]) * time.Microsecond)
		p.blow(kind)
	}
	err = work.Wait()
	client.stop()
	server.stop()
	for i := range d.jobs {
		err = errors.Join(err, check(k.taken[fmt.Sprint("job", i)], d.frames))
	}
	if k.twice {
		err = errors.Join(err, errors.New("two streams delivered frames of one job at the same time"))
	}
	return k.calls - d.jobs*d.frames, err
}

// TestOldStreamEndsFirst has the worker come back while something of its old stream is still being delivered.
func TestOldStreamEndsFirst(t *testing.T) {
	k, c, p := pair(t, nil)
	let := k.hold("a")
	defer let()
	k.set(func(k *taker) { k.stubborn = true })
	ended := make(chan error, 1)
	go func() { ended <- send(within(t), c, p.addr(), "a", 20) }()
	until(t, "a frame is being delivered", func() bool { return k.delivers("a") })
	p.lose(false)
	until(t, "the worker has come back", func() bool { return p.count() > 1 })
	select {
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(100 * time.Millisecond): // for what must not happen
	}
	let()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	whole(t, k.frames(t, "a", 20), 20)
	if n := c.Counts(); n.Links != 2 || n.Resent != 19 && n.Resent != 20 {
		t.Errorf("the worker counts %+v, want 20 frames sent again, or one less", n)
	}
	if k.twice {
		t.Error("two streams delivered frames of one job at the same time")
	}
}
