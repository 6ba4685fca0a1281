//go:build race

package exec

// raceEnabled: the race detector drops from pools at random, so allocations can't be counted under it.
const raceEnabled = true
