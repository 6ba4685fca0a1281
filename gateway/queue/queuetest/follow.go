package queuetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"qr-gateway/gateway/queue"
	"qr-gateway/gateway/queue/model"
)

func followCases() []testCase {
	return []testCase{
		{name: "the model of the life of jobs is kept to", run: follow},
		{name: "and where a job may lose no worker", limits: func(l *Limits) { l.Attempts = 1 }, run: follow},
	}
}

// follow goes random ways through the model, does to the queue what the model says is done, and holds that both are in the same state after each
// step. Nothing is forgotten here: no queue that runs does that.
func follow(b *bench) {
	limits := model.Limits{Jobs: model.Jobs, Attempts: uint8(b.limits.Attempts), Faults: 3, Rounds: 2}
	for seed := range uint64(b.many(walks)) {
		w := &walk{bench: b, name: fmt.Sprint("walk", seed), rng: rand.New(rand.NewPCG(1, seed)), s: model.Start(limits)}
		for range walkLength {
			step, ok := w.choose(w.s.Next(limits))
			if !ok {
				break
			}
			w.steps = append(w.steps, fmt.Sprintf("%s %d", step.What, step.Who))
			w.do(step)
			w.s = step.After
			w.compare()
			if b.Failed() {
				b.Fatalf("after %q", w.steps)
			}
		}
		w.tidy()
	}
}

const (
	walks      = 40
	walkLength = 40
)

// walk is one way through the model beside a queue.
type walk struct {
	*bench
	name   string
	rng    *rand.Rand
	s      model.State
	ids    [model.Jobs]string // of the newest submission
	leases [model.Workers]queue.Lease
	steps  []string
}

// choose takes one of the steps that a running queue can take part in. Faults and clients that leave are rare, or nothing else would happen.
func (w *walk) choose(steps []model.Step) (model.Step, bool) {
	whim := w.rng.IntN(5) == 0
	var can []model.Step
	for _, step := range steps {
		switch step.What {
		case "queue forgets everything", "wait too long", "submit what was forgotten", "go on with what was forgotten":
		default:
			if step.Must != whim {
				can = append(can, step)
			}
		}
	}
	if len(can) == 0 {
		return model.Step{}, false
	}
	return can[w.rng.IntN(len(can))], true
}

// do does to the queue what a step says. Steps that don't touch it have no case.
func (w *walk) do(step model.Step) {
	switch step.What {
	case "submit", "go on behind what was lost":
		w.enter(step.Who, step.After.Jobs[step.Who])
	case "claim":
		w.take(step.Who, int(step.After.Runs[step.Who].Job)-1)
	case "client leaves", "give up", "cancel for a dead gateway":
		w.leave(step.Who)
	case "lease ends":
		w.silence(func(worker int) bool { return int(w.s.Runs[worker].Job) == step.Who+1 })
	case "worker stands still":
		w.silence(func(worker int) bool { return worker == step.Who })
	case "engine dies":
		w.fail(step.Who)
	case "report text":
		w.report(step.Who)
	case "find out that the lease is gone":
		w.fencedOff(step.Who)
	case "stop for a client that left":
		w.end(step.Who, queue.StateCancelled, "")
	case "settle":
		w.end(step.Who, queue.StateDone, "")
	}
}

// enter submits a job. What goes on behind a lost answer is a job of its own, with epochs above those of the first.
func (w *walk) enter(j int, job model.Job) {
	w.ids[j] = fmt.Sprintf("%s-%d-%d", w.name, j, job.Epoch)
	w.submitJob(queue.Job{ID: w.ids[j], Key: "k", Model: fmt.Sprint("m", j), Cost: 1, Floor: int64(job.Epoch)})
}

func (w *walk) take(worker, j int) {
	w.leases[worker] = w.claim(fmt.Sprint("m", j))
	if got := w.leases[worker].Job.ID; got != w.ids[j] {
		w.Errorf("claimed %s, want %s", got, w.ids[j])
	}
}

// leave cancels a job that the model has live. It may have been submitted by nobody.
func (w *walk) leave(j int) {
	if w.ids[j] != "" {
		w.cancel(w.ids[j])
	}
}

// holds says whether the model believes the lease of a worker to be good.
func (w *walk) holds(worker int) bool {
	return w.s.Runs[worker].Holds(&w.s)
}

// silence lets a lease's time go by for those workers of whom nothing is heard.
func (w *walk) silence(of func(worker int) bool) {
	for range 5 {
		w.h.Advance(w.limits.Lease / 3)
		for worker := range model.Workers {
			if w.holds(worker) && !of(worker) {
				w.beat(w.leases[worker], boolSeq(w.s.Runs[worker].Mark))
			}
		}
	}
}

func boolSeq(marked bool) int64 {
	if marked {
		return 1
	}
	return 0
}

// fail is the end of a run whose engine died: without text the job goes back and has lost an attempt.
func (w *walk) fail(worker int) {
	switch {
	case !w.holds(worker):
	case w.s.Runs[worker].Mark:
		w.end(worker, queue.StateFailed, "its engine died")
	default:
		w.end(worker, queue.StateQueued, "its engine died")
	}
}

func (w *walk) report(worker int) {
	if w.holds(worker) {
		w.beat(w.leases[worker], 1)
	}
}

func (w *walk) fencedOff(worker int) {
	err := w.q.Heartbeat(w.Context(), w.leases[worker], queue.Progress{Seq: 1})
	if !errors.Is(err, queue.ErrFenced) {
		w.Errorf("Heartbeat of a lease that is gone = %v, want ErrFenced", err)
	}
}

func (w *walk) end(worker int, to queue.State, reason string) {
	if w.holds(worker) {
		w.settle(w.leases[worker], to, reason)
	}
}

// compare holds that the queue has every job as the model has it.
func (w *walk) compare() {
	for j, job := range w.s.Jobs {
		if job.State == model.Absent {
			continue
		}
		got := w.now(w.ids[j])
		if want := stateOf(job.State); got.State != want || got.Epoch != 0 && got.Epoch != int64(job.Epoch) {
			w.Errorf("job %d is %s in epoch %d; in the model it is %s in epoch %d", j, got.State, got.Epoch, want, job.Epoch)
		}
	}
}

func (w *walk) now(id string) queue.Status {
	ctx, stop := context.WithTimeout(w.Context(), 10*time.Second)
	defer stop()
	states, err := w.q.Watch(ctx, id)
	if err != nil {
		w.Fatalf("Watch(%s): %v", id, err)
	}
	return <-states
}

func stateOf(q model.Queued) queue.State {
	return map[model.Queued]queue.State{
		model.Waiting: queue.StateQueued, model.Leased: queue.StateLeased, model.Streaming: queue.StateStreaming,
		model.Done: queue.StateDone, model.Failed: queue.StateFailed, model.Cancelled: queue.StateCancelled,
	}[q]
}

// tidy leaves nothing for the next walk to find.
func (w *walk) tidy() {
	for _, id := range w.ids {
		if id != "" {
			w.cancel(id)
		}
	}
}
