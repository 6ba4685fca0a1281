//go:build race

package sampler_test

// raceEnabled says that the race detector is on.
const raceEnabled = true
