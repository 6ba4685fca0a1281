//go:build race

package temper_test

// raceEnabled: the race detector allocates on its own, so allocations are counted without it.
const raceEnabled = true
