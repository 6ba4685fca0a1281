package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"qr-gateway/gateway/drill"
)

// exercise is one drill under way.
type exercise struct {
	*rig
	rng    *rand.Rand
	client *http.Client
	began  time.Time
	want   map[question]string // undisturbed answers, by question

	saw seen // by watchLimits, once it has ended

	mu  sync.Mutex // guards what follows
	run drill.Run
}

// TestDrill asks a cluster many things while processes are killed and frozen, the queue's server forgets, and lines are cut. `make drill`
// runs it at length.
func TestDrill(t *testing.T) {
	t.Parallel()
	total, seed := number(t, "QR_DRILL_REQUESTS", 80), number(t, "QR_DRILL_SEED", 5)
	e := &exercise{rig: newDrillRig(t), rng: rand.New(rand.NewPCG(uint64(seed), 6)), want: map[question]string{}}
	e.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	e.run.Slack, e.run.Spare = 3*e.lease, drillSpare
	e.start(t)
	e.rehearse(t)
	span := max(22*time.Second, time.Duration(total)*130*time.Millisecond)
	plan := drill.Plan(e.rng, e.targets(), drill.Schedule{Span: span, Gap: 1300 * time.Millisecond, Min: 300 * time.Millisecond, Max: 3 * time.Second})
	requests := e.requests(total)
	limits := e.watchLimits(t)
	e.began = time.Now()
	var faults, clients sync.WaitGroup
	for _, f := range plan {
		faults.Go(func() { e.fault(t, f) })
	}
	e.flood(t, span, &clients)
	for i, r := range requests {
		clients.Go(func() { e.at(t, span*time.Duration(i)/time.Duration(total)); e.ask(t, r) })
	}
	faults.Wait()
	e.recover(t)
	clients.Wait()
	e.leave(t)
	limits()
	e.idle(t, 2*e.lease)
	e.readLogs(t)
	e.judgeFlood(t)
	e.judge(t, seed)
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q; it takes a number above 0", name, text)
	}
	return n
}

func (e *exercise) targets() drill.Targets {
	return drill.Targets{
		Gateways: slices.Sorted(maps.Keys(e.gateways)), Workers: slices.Sorted(maps.Keys(e.workers)), Server: "redis", Lines: slices.Sorted(maps.Keys(e.lines)),
	}
}

// at waits for a time of the run.
func (e *exercise) at(t *testing.T, when time.Duration) {
	select {
	case <-time.After(time.Until(e.began.Add(when))):
	case <-t.Context().Done():
	}
}

// question is what is asked, of which the undisturbed answer is known. They are few, so that this takes little time.
type question struct {
	model, prompt, decoding string
}

// decodings of the real model: greedy, drawn with a seed, and looking ahead. A greedy one has a seed too: without it what the cache has of a prompt
// is taken from there, the rest is computed in other batches, and a near tie may fall otherwise.
var decodings = map[string]map[string]any{
	"greedy": {"temperature": 0, "seed": 7, "qr_decoder": "plain"},
	"seeded": {"temperature": 0.8, "seed": 7, "qr_decoder": "plain"},
	"ahead":  {"temperature": 0.8, "seed": 7, "qr_alpha": 0.3},
}

func questions(model string) []question {
	var out []question
	if model == "words" {
		for i := range 20 {
			out = append(out, question{model, fmt.Sprintf("Say word number %d.", i+2), "greedy"})
		}
		return out
	}
	for _, decoding := range slices.Sorted(maps.Keys(decodings)) {
		for i := range 2 {
			out = append(out, question{model, fmt.Sprintf("Tell me a long story about %d boats.", i+2), decoding})
		}
	}
	return out
}

// tokens are the most of an answer.
func tokens(model string) int {
	if model == "smollm2" {
		return 40
	}
	return 60
}

func (e *exercise) request(id, gateway string, q question) drill.Request {
	return drill.Request{
		ID: id, Gateway: gateway, Model: q.model, Prompt: q.prompt, Params: decodings[q.decoding], Tokens: tokens(q.model), Stream: true, Want: e.want[q],
	}
}

// rehearse gets the undisturbed answers.
func (e *exercise) rehearse(t *testing.T) {
	t.Helper()
	e.began = time.Now()
	var mu sync.Mutex
	var work sync.WaitGroup
	for i, q := range slices.Concat(questions("words"), questions("smollm2")) {
		work.Go(func() {
			r := e.request(fmt.Sprintf("rehearsal-%d", i), "gateway1", q)
			r.Key = r.ID // none has a line of its own that is full
			a := drill.Ask(t.Context(), e.client, e.urls[r.Gateway], r, e.began, time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if e.want[q] = a.Text; a.Ending != drill.Whole || a.Text == "" {
				t.Errorf("undisturbed, %v", drill.Exchange{Request: r, Answer: a})
			}
		})
	}
	work.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// requests are drawn: mostly streams, some whole answers, some clients that leave.
func (e *exercise) requests(total int) []drill.Request {
	gateways := slices.Sorted(maps.Keys(e.gateways))
	out := make([]drill.Request, total)
	for i := range out {
		model := "words"
		if e.rng.IntN(10) == 0 {
			model = "smollm2"
		}
		all := questions(model)
		r := e.request(fmt.Sprintf("drill-%05d", i), gateways[e.rng.IntN(len(gateways))], all[e.rng.IntN(len(all))])
		r.Stream = e.rng.IntN(5) != 0
		if e.rng.IntN(8) == 0 {
			r.Leave = time.Duration(e.rng.IntN(1500)+1) * time.Millisecond
		}
		out[i] = r
	}
	return out
}

func (e *exercise) fault(t *testing.T, f drill.Fault) {
	e.at(t, f.At)
	if err := e.do(t.Context(), &f, e.began); err != nil {
		t.Error(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.run.Faults = append(e.run.Faults, f)
}

func (e *exercise) ask(t *testing.T, r drill.Request) drill.Answer {
	a := drill.Ask(t.Context(), e.client, e.urls[r.Gateway], r, e.began, 45*time.Second)
	e.note(drill.Exchange{Request: r, Answer: a})
	return a
}

func (e *exercise) note(all ...drill.Exchange) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.run.Exchanges = append(e.run.Exchanges, all...)
}

// recover holds that two leases after the last fault every gateway has answers of every model.
func (e *exercise) recover(t *testing.T) {
	t.Helper()
	var last time.Duration
	for _, f := range e.run.Faults {
		last = max(last, f.End())
	}
	var work sync.WaitGroup
	for gateway := range e.gateways {
		for _, model := range []string{"words", "smollm2"} {
			work.Go(func() {
				for n := 0; ; n++ {
					a := e.ask(t, e.request(fmt.Sprintf("probe-%s-%s-%d", gateway, model, n), gateway, questions(model)[0]))
					if a.Ending == drill.Whole && a.Began <= last+2*e.lease {
						return
					}
					if a.Began > last+2*e.lease {
						t.Errorf("%s has no answer of %s two leases after the last fault: %s, %s", gateway, model, a.Ending, a.Message)
						return
					}
					e.at(t, a.Ended+100*time.Millisecond)
				}
			})
		}
	}
	work.Wait()
}

// leave holds that nobody works for clients that have left, a heartbeat and some grace later.
func (e *exercise) leave(t *testing.T) {
	t.Helper()
	e.idle(t, 2*e.lease)
	var work sync.WaitGroup
	for model, n := range map[string]int{"words": 2 * fakeWorkers * fakeSlots, "smollm2": 2 * llamaWorkers} {
		for i := range n {
			r := e.request(fmt.Sprintf("leaver-%s-%d", model, i), fmt.Sprintf("gateway%d", i%2+1), e.longest(model))
			r.Leave, r.Key = 400*time.Millisecond, r.ID
			work.Go(func() { e.ask(t, r) })
		}
	}
	work.Wait()
	e.idle(t, e.lease/4+500*time.Millisecond)
}

// longest is the question with the longest answer.
func (e *exercise) longest(model string) question {
	return slices.MaxFunc(questions(model), func(a, b question) int { return len(e.want[a]) - len(e.want[b]) })
}

// idle holds that after a while no worker runs anything, and nothing waits.
func (e *exercise) idle(t *testing.T, within time.Duration) {
	t.Helper()
	until := time.Now().Add(within)
	for {
		busy := e.busyWorkers(t)
		if busy == "" {
			return
		}
		if time.Now().After(until) {
			t.Errorf("%s after the last client there is work: %s", within, busy)
			return
		}
		<-time.After(50 * time.Millisecond)
	}
}

// busyWorkers says who runs something.
func (e *exercise) busyWorkers(t *testing.T) (busy string) {
	t.Helper()
	for name := range e.workers {
		s := &server{url: e.urls[name]}
		for gauge, n := range s.gauges(t) {
			if strings.HasPrefix(gauge, "qr_gateway_workers_busy") && n > 0 {
				busy += fmt.Sprintf(" %s runs %v", name, n)
			}
		}
	}
	return busy
}

// readLogs takes the ends of requests out of the gateways' logs, once they have ended.
func (e *exercise) readLogs(t *testing.T) {
	t.Helper()
	for name, p := range e.gateways {
		if err := p.end(); err != nil {
			t.Error(err)
		}
		lines := bufio.NewScanner(strings.NewReader(p.log.String()))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var l struct {
				Msg       string
				RequestID string `json:"request_id"`
				Status    int
			}
			if json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == "request" && !strings.HasPrefix(l.RequestID, "rehearsal") {
				e.run.Log = append(e.run.Log, drill.Logged{ID: l.RequestID, Gateway: name, Status: l.Status})
			}
		}
	}
}

// judge says what was seen, and what must not have been.
func (e *exercise) judge(t *testing.T, seed int) {
	t.Helper()
	endings, told, continued, whole, all := map[drill.Ending]int{}, map[string]int{}, 0, 0, 0
	for _, x := range e.run.Exchanges {
		endings[x.Ending]++
		if x.Key == "" {
			all++
		}
		if x.Key == "" && x.Ending == drill.Whole {
			whole++
		}
		if x.Code != "" {
			told[x.Code+": "+x.Message]++
		}
		continued += x.Continued
	}
	t.Logf("seed %d: %d requests, %d faults: %v, taken up by another worker %d times", seed, len(e.run.Exchanges), len(e.run.Faults), endings, continued)
	for _, text := range slices.Sorted(maps.Keys(told)) {
		t.Logf("%3d times %s", told[text], text)
	}
	if whole < all/3 {
		t.Error("too few answers are whole for the drill to show anything")
	}
	for _, v := range e.run.Check() {
		t.Error(v)
	}
	if !t.Failed() {
		return
	}
	t.Logf("run it again with QR_DRILL_SEED=%d; the faults were:", seed)
	for _, f := range e.run.Faults {
		t.Log(f)
	}
	e.keepLogs(t)
}

// keepLogs writes the processes' logs where QR_DRILL_LOGS says.
func (e *exercise) keepLogs(t *testing.T) {
	t.Helper()
	dir := os.Getenv("QR_DRILL_LOGS")
	if dir == "" {
		return
	}
	for name, p := range e.all() {
		_ = p.end()
		write(t, dir+"/"+name+".log", p.log.String())
	}
}
