package llama

import (
	"testing"
	"time"
)

// TestStalledEngineIsNotWaitedFor: what makes no progress does not stop politely either, and requests wait meanwhile.
func TestStalledEngineIsNotWaitedFor(t *testing.T) {
	stuck := &fakeEngine{idle: time.Hour}
	b := fakeBackend(t, &script{engines: []*fakeEngine{stuck}})
	b.cfg.Grace = time.Minute
	running(t, b)
	begun := time.Now()
	if err := b.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-stuck.done
	if err := generate(t, b); err != nil || time.Since(begun) > b.cfg.Grace/2 {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
}
