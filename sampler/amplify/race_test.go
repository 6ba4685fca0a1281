//go:build race

package amplify_test

// raceEnabled: the race detector allocates on its own, so allocations are counted without it.
const raceEnabled = true
