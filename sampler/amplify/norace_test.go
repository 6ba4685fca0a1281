//go:build !race

package amplify_test

// raceEnabled is false where allocations can be counted.
const raceEnabled = false
