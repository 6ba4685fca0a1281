package openai

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain leaves the lookup of a name out, which Go has go on when nobody waits for it any more.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("internal/singleflight.(*Group).doCall"), goleak.IgnoreAnyFunction("net.(*Resolver).goLookupIPCNAMEOrder.func3"),
		goleak.IgnoreAnyFunction("net.(*Resolver).goLookupIPCNAMEOrder.func3.1"))
}
