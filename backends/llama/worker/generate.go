package worker

import (
	"context"
	"fmt"
	"time"

	"qr-gateway/backends"
	"qr-gateway/backends/account"
	"qr-gateway/backends/text"
	"qr-gateway/sampler"
)

// Job is one prepared request.
type Job struct {
	ID          string
	Tokens      []int32 // the prompt, at least one
	Delivered   []int32 // tokens of the answer that its client has from a run that was lost
	MaxTokens   int     // 0 is the rest of the context
	Params      sampler.Params
	Stops       []string
	IncludeStop bool
	Format      []byte  // of the chat template, if the text is to be split
	Thinking    bool    // the template was told to think
	Allow       []int32 // control tokens that the think-ban leaves alone
}

// run is a request while it runs.
type run struct {
	w      *Worker
	job    *Job
	limit  int // tokens to generate
	answer *answer
	choose chooser
	tap    *account.Tap
	ledger *account.Ledger
	emit   func(backends.Event) error
	one    [1]int32 // the token of an event
	count  int      // tokens generated, without the end-of-generation token
	cached int
	begun  time.Time
	first  time.Time // when the prompt's row was there
}

// generate runs a job on the worker's goroutine.
func (w *Worker) generate(ctx context.Context, job *Job, emit func(backends.Event) error) (*backends.Result, error) {
	limit, err := w.admit(job)
	if err != nil {
		return nil, err
	}
	r := &run{w: w, job: job, limit: limit, emit: emit, begun: time.Now(), ledger: account.NewLedger(job.ID, &job.Params, w.deps.Log)}
	r.answer = newAnswer(text.NewStops(job.Stops, job.IncludeStop), w.deps.Parse, job.Format)
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	defer r.tap.End()
	stopped, err := r.start(ctx)
	if err != nil {
		return nil, err
	}
	reason := backends.ReasonStop
	if !stopped {
		if reason, err = r.loop(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.choose.end(); err != nil {
		return nil, err
	}
	return r.result(reason), nil
}

// open makes ready what chooses, and refuses what can't be done before anything is decoded.
func (r *run) open(ctx context.Context) (err error) {
	p := &r.job.Params
	if err := r.w.stream.Begin(p, r.job.Tokens); err != nil {
		return account.Explain(ctx, err)
	}
	r.w.stream.Observe(r.ledger.Tells())
	r.tap, err = account.Open(ctx, r.w.deps.Entropy, p)
	return err
}

// admit is the number of tokens the job may generate. The cache has cells for the whole context and one group besides.
func (w *Worker) admit(job *Job) (int, error) {
	if len(job.Tokens) == 0 {
		return 0, &backends.Error{Kind: backends.KindInvalid, Code: "empty_prompt", Param: "prompt", Message: "the prompt has no tokens"}
	}
	rest := w.cfg.Context - len(job.Tokens)
	if rest < 1 {
		return 0, backends.TooLong(len(job.Tokens), w.cfg.Context)
	}
	if job.MaxTokens > 0 {
		rest = min(rest, job.MaxTokens)
	}
	if len(job.Delivered) > rest {
		return 0, &backends.Error{
			Kind: backends.KindInvalid, Code: "invalid_value",
			Message: fmt.Sprintf("the answer to take up has %d tokens, and may have %d", len(job.Delivered), rest),
		}
	}
	return rest, nil
}

// start decodes the prompt, takes up an answer that has begun, and makes the chooser. stopped is that nothing is left to choose.
func (r *run) start(ctx context.Context) (stopped bool, err error) {
	w, job := r.w, r.job
	started := &backends.Started{Worker: w.cfg.Index, PromptTokens: len(job.Tokens)}
	started.Content, started.Reasoning, stopped = r.retell()
	known, repeat := r.prefill(), !stopped && r.repeats()
	if repeat {
		known = job.Tokens
	}
	if r.cached, err = w.rewind(known, repeat || job.Params.Seed != nil); err != nil {
		return false, err
	}
	started.CachedTokens = r.cached
	if err := r.emit(backends.Event{Started: started}); err != nil {
		return false, err
	}
	r.tap.Accepted(-1, -1)
	row, err := w.prompt(ctx, known, r.cached)
	if err != nil {
		return false, err
	}
	if r.choose, err = r.takeUp(ctx, row, repeat); err != nil {
		return false, err
	}
	r.first = time.Now()
	w.doing.Store(&activity{state: stateDecode, request: job.ID})
	return stopped, nil
}

// loop chooses tokens until something ends the text, and returns what did.
func (r *run) loop(ctx context.Context) (reason string, err error) {
	for r.count < r.limit {
		token, err := r.choose.next(ctx, r.count)
		if err != nil {
			return "", err
		}
		r.w.progress.tokens.Add(1)
		if r.w.lang.EOG.Has(token) {
			return backends.ReasonStop, r.finish()
		}
		r.count++
		content, reasoning, stopped := r.answer.add(r.piece(token))
		r.one[0] = token
		err = r.emit(backends.Event{Content: content, Reasoning: reasoning, Tokens: r.one[:]})
		if stopped || err != nil {
			return backends.ReasonStop, err
		}
	}
	return backends.ReasonLength, r.finish()
}

// piece is the text of a token. A text that is parsed needs its control tokens: they are what it is parsed by.
func (r *run) piece(token int32) []byte {
	if r.answer.parse != nil {
		return r.w.lang.Vocab.SpecialPiece(token)
	}
	return r.w.lang.Vocab.Piece(token)
}

// finish sends what was held back.
func (r *run) finish() error {
	content, reasoning := r.answer.end()
	if content == "" && reasoning == "" {
		return nil
	}
	return r.emit(backends.Event{Content: content, Reasoning: reasoning})
}

// result is the account of the finished run.
func (r *run) result(reason string) *backends.Result {
	s := backends.DecodeStats{Worker: r.w.cfg.Index, PromptMS: millis(r.begun, r.first), DecodeMS: millis(r.first, time.Now())}
	account.Describe(&s, &r.job.Params, r.tap, r.ledger)
	r.choose.stats(&s)
	usage := backends.Usage{PromptTokens: len(r.job.Tokens), CompletionTokens: r.count, CachedTokens: r.cached}
	return &backends.Result{Reason: reason, Usage: usage, Stats: s}
}

func millis(from, to time.Time) float64 { return float64(to.Sub(from).Microseconds()) / 1000 }
