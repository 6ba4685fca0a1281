package account

import (
	"fmt"
	"log/slog"
	"time"

	"qr-gateway/backends"
	"qr-gateway/sampler"
)

// MaxRecords is how many tokens of an answer are told one by one: the newest.
const MaxRecords = 4096

// Ledger accounts for the tokens of one answer: what their numbers were made of, and where that is asked for each one whole.
type Ledger struct {
	log     *slog.Logger
	request string
	keep    bool   // records
	level   string // of the log: none, summary or full

	tokens, numbers, fallbacks, pipelined int
	discarded                             int64
	flagged                               map[string]int
	calibration                           string

	records []sampler.Record // a ring once it is full: the oldest stands at oldest
	oldest  int
	dropped int

	before counted // for Void
}

// NewLedger begins the account of the answer to request, which asks for what p says.
func NewLedger(request string, p *sampler.Params, log *slog.Logger) *Ledger {
	return &Ledger{log: log, request: request, keep: p.DiagnosticMode, level: p.LogLevel}
}

// Tells reports whether tokens are told one by one.
func (l *Ledger) Tells() bool {
	return l.keep || l.level == sampler.LogSummary || l.level == sampler.LogFull
}

// Clock is the time where it is needed.
func (l *Ledger) Clock() (now time.Time) {
	if l.Tells() {
		now = time.Now()
	}
	return now
}

// Count takes one token. ev is what its number was made of; nil where it took none.
func (l *Ledger) Count(ev *sampler.Evidence) {
	l.note(ev)
	l.tokens++
	if ev == nil {
		return
	}
	l.numbers++
	if ev.Fallback {
		l.fallbacks++
	}
	l.discarded += ev.Discarded
	for _, name := range ev.Flags {
		if l.flagged == nil {
			l.flagged = map[string]int{}
		}
		l.flagged[name]++
	}
	if a := ev.Asked; a != nil && a.Hit {
		l.pipelined++
	} else if a != nil {
		l.discarded++
	}
	if c := ev.Calibration; c != nil {
		l.calibration = c.Hash()
	}
}

// Tell takes the record of the token counted last. begun is when its row was there.
func (l *Ledger) Tell(r sampler.Record, begun time.Time) {
	now := time.Now()
	r.TotalMS = sampler.Maybe(float64(now.Sub(begun).Nanoseconds()) / 1e6)
	if r.TimestampNS == 0 {
		r.TimestampNS = now.UnixNano()
	}
	switch l.level {
	case sampler.LogSummary:
		l.log.Info(summary(&r), "request", l.request, "step", r.Step)
	case sampler.LogFull:
		l.log.Info("sampling_record", "request", l.request, "record", r)
	}
	l.before.told = l.keep
	switch {
	case !l.keep:
	case len(l.records) < MaxRecords:
		l.records = append(l.records, r)
	default:
		l.records[l.oldest] = r
		l.oldest = (l.oldest + 1) % MaxRecords
		l.dropped++
	}
}

// summary is one token on one line, with the fields of qr-sampler's.
func summary(r *sampler.Record) string {
	source := r.Source
	if r.Fallback {
		source += " [FALLBACK]"
	}
	return fmt.Sprintf("token=%d rank=%d prob=%.4f u=%.6f temp=%.3f entropy=%.3f source=%s fetch_ms=%.2f total_ms=%.2f",
		r.Token, r.Rank, float64(r.Prob), float64(r.U), r.Temperature, float64(r.H), source, float64(r.FetchMS), float64(r.TotalMS))
}

// Stats adds the account.
func (l *Ledger) Stats(s *backends.DecodeStats) {
	s.Tokens, s.FallbackTokens, s.FlaggedTokens, s.Pipelined = l.tokens, l.fallbacks, l.flagged, l.pipelined
	s.Discarded, s.Calibration, s.RecordsDropped = l.discarded, l.calibration, l.dropped
	if l.keep {
		s.Records = append(append([]sampler.Record{}, l.records[l.oldest:]...), l.records[:l.oldest]...)
	}
}
