package account_test

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

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
