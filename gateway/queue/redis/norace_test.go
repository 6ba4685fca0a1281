//go:build !race

package redis_test

// raceEnabled: the race detector makes the long cases several times as long.
const raceEnabled = false
