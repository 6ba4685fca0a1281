//go:build !race

package exec

// raceEnabled is false where allocations can be counted.
const raceEnabled = false
