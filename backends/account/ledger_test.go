package account_test

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"qr-gateway/backends"
	"qr-gateway/backends/account"
	"qr-gateway/sampler"
)

func TestRecordsAreBounded(t *testing.T) {
	l := account.NewLedger("a", &sampler.Params{DiagnosticMode: true, LogLevel: sampler.LogNone}, slog.New(slog.DiscardHandler))
	const more = 10
	for step := range account.MaxRecords + more {
		l.Count(nil)
		l.Tell(sampler.Record{Step: step}, time.Now())
	}
	var s backends.DecodeStats
	l.Stats(&s)
	if len(s.Records) != account.MaxRecords || s.RecordsDropped != more || s.Records[0].Step != more || s.Records[account.MaxRecords-1].Step != account.MaxRecords+more-1 {
		t.Errorf("%d records, %d dropped, from %d to %d", len(s.Records), s.RecordsDropped, s.Records[0].Step, s.Records[len(s.Records)-1].Step)
	}
	text, err := json.Marshal(s)
	var back backends.DecodeStats
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil || len(back.Records) != account.MaxRecords {
		t.Errorf("%d records travel: %v", len(back.Records), err)
	}
}

func TestVoidTakesBack(t *testing.T) {
	p := sampler.Params{DiagnosticMode: true, LogLevel: sampler.LogNone}
	told := func(l *account.Ledger) (s backends.DecodeStats) {
		l.Stats(&s)
		return s
	}
	l := account.NewLedger("a", &p, slog.New(slog.DiscardHandler))
	l.Count(&sampler.Evidence{Block: sampler.Block{Flags: []string{"drift"}}})
	l.Tell(sampler.Record{Step: 0}, time.Now())
	before := told(l)
	for _, ev := range []*sampler.Evidence{nil, {Block: sampler.Block{Fallback: true, Flags: []string{"drift", "repetition"}, Discarded: 3}}} {
		l.Count(ev)
		l.Tell(sampler.Record{Step: 1}, time.Now())
		l.Void()
		l.Void() // of one token only
		after := told(l)
		if ev != nil {
			before.Discarded += 4
		}
		if diff := cmp.Diff(before, after, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("account after a void (-want +got):\n%s", diff)
		}
	}
}

func TestVoidForgetsTheNewestRecord(t *testing.T) {
	p := sampler.Params{DiagnosticMode: true, LogLevel: sampler.LogNone}
	l := account.NewLedger("a", &p, slog.New(slog.DiscardHandler))
	for step := range account.MaxRecords + 5 {
		l.Count(nil)
		l.Tell(sampler.Record{Step: step}, time.Now())
	}
	l.Void()
	l.Count(nil)
	l.Tell(sampler.Record{Step: 9999}, time.Now())
	var s backends.DecodeStats
	l.Stats(&s)
	n := len(s.Records)
	if s.Records[n-1].Step != 9999 || s.Records[n-2].Step != account.MaxRecords+3 || s.Records[0].Step != 5 {
		t.Errorf("records end with steps %d, %d and begin with %d", s.Records[n-2].Step, s.Records[n-1].Step, s.Records[0].Step)
	}
}
