package health

import "testing"

func TestTestAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	m, block := New(DefaultConfig()), make([]byte, 20480)
	for i := range block {
		block[i] = byte(i * i >> 3)
	}
	if n := testing.AllocsPerRun(2000, func() { m.Test(block) }); n != 0 {
		t.Errorf("%v allocations a block", n)
	}
}
