package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"

	"qr-gateway/gateway/drill"
	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/redis"
)

// Callers of the drill that ask for more at once than may wait, of each and of all together.
const (
	floodSize  = 2*drillKey + 6
	floodEvery = 20 * time.Second
)

var flooders = []string{"flooder-1", "flooder-2", "flooder-3"}

// flood has every flooder ask for much at once, several times, at any gateway; they come again when they are refused.
func (e *exercise) flood(t *testing.T, span time.Duration, clients *sync.WaitGroup) {
	gateways, all := slices.Sorted(maps.Keys(e.gateways)), questions("words")
	for when := floodEvery / 4; when < span-floodEvery/4; when += floodEvery {
		for _, key := range flooders {
			for i := range floodSize {
				r := e.request(fmt.Sprintf("%s-%s-%02d", key, when, i), gateways[e.rng.IntN(len(gateways))], all[e.rng.IntN(len(all))])
				r.Key, r.Stream = key, e.rng.IntN(2) == 0
				clients.Go(func() {
					e.at(t, when)
					e.note(drill.Persist(t.Context(), e.client, e.urls[r.Gateway], r, e.began, 45*time.Second)...)
				})
			}
		}
	}
}

// judgeFlood holds that the limits were met, and that those who came again got their answers.
func (e *exercise) judgeFlood(t *testing.T) {
	t.Helper()
	refused, late, saw := 0, 0, e.saw
	for _, x := range e.run.Exchanges {
		if x.Status == 429 {
			refused++
		}
		if x.Ending == drill.Whole && strings.Contains(x.ID, "-again") {
			late++
		}
	}
	t.Logf("%d requests were refused for a full queue, and %d answered after that; at most %d waited in all, %v of a flooder", refused, late, saw.waiting, saw.ofKey)
	if refused == 0 || late == 0 {
		t.Error("no limit was met, or nobody came again")
	}
	if saw.samples < 10 || saw.waiting == 0 {
		t.Errorf("the queue was looked at %d times", saw.samples)
	}
	for _, key := range flooders {
		if saw.ofKey[key] < drillKey/2 {
			t.Errorf("at most %d of %s waited: that is no flood", saw.ofKey[key], key)
		}
	}
}

// seen is the most that the queue held.
type seen struct {
	samples, waiting int
	ofKey            map[string]int
}

// limitWatch looks at a queue all the time.
type limitWatch struct {
	queue  queue.Gauge
	server client.UniversalClient
	seen
}

// watchLimits looks all the time whether more waits than may, in all or of one caller. What it returns ends that, and looks at the end.
func (e *exercise) watchLimits(t *testing.T) (stop func()) {
	t.Helper()
	c := redis.DefaultConfig()
	c.URL, c.Name = "redis://"+e.redisAddr+"/0", "drill"
	q, err := redis.Open(t.Context(), c, redis.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	w := &limitWatch{queue: q, server: client.NewClient(&client.Options{Addr: e.redisAddr}), seen: seen{ofKey: map[string]int{}}}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			if err := w.look(ctx); err != nil {
				t.Error(err)
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		work.Wait()
		e.saw = w.seen
		s, err := q.Stats(t.Context())
		for model, m := range s.Models {
			if m.Waiting+m.Running > 0 {
				t.Errorf("at the end %d requests wait for %s, and %d run", m.Waiting, model, m.Running)
			}
		}
		if err := errors.Join(err, q.Close(), w.server.Close()); err != nil {
			t.Errorf("look at the queue at the end: %v", err)
		}
	}
}

// look says what is more than may be. A server that is away says nothing.
func (w *limitWatch) look(ctx context.Context) error {
	s, err := w.queue.Stats(ctx)
	if err != nil {
		return nil //nolint:nilerr // it is away
	}
	w.samples++
	waiting := 0
	for _, m := range s.Models {
		waiting += m.Waiting
	}
	w.waiting = max(w.waiting, waiting)
	var over error
	if waiting > drillJobs+drillSpare {
		over = fmt.Errorf("%d requests wait; %d may, and %d of workers", waiting, drillJobs, drillSpare)
	}
	for _, key := range flooders {
		n, err := w.ofCaller(ctx, key)
		w.ofKey[key] = max(w.ofKey[key], n)
		if n > drillKey+drillSpare {
			err = fmt.Errorf("%d requests of %s wait; %d may, and %d of workers", n, key, drillKey, drillSpare)
		}
		over = errors.Join(over, err)
	}
	return over
}

// ofCaller reads how many of a caller wait out of the queue's own books: jobs, tokens and bytes.
func (w *limitWatch) ofCaller(ctx context.Context, key string) (int, error) {
	sum := sha256.Sum256([]byte(key))
	name := "{qr:drill}:use:key:" + hex.EncodeToString(sum[:8])
	text, err := w.server.Get(ctx, name).Result()
	if err != nil {
		return 0, nil //nolint:nilerr // nothing waits, or it is away
	}
	jobs, _, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(jobs)
	if err != nil {
		return 0, fmt.Errorf("the queue's books are not as this test knows them: %w", err)
	}
	return n, nil
}
