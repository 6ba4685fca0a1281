//go:build !race

package temper_test

// raceEnabled is false where allocations can be counted.
const raceEnabled = false
