//go:build !race

package api_test

// raceEnabled is false where allocations can be counted.
const raceEnabled = false
