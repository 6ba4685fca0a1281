//go:build race

package local

// raceEnabled: the detector itself allocates.
const raceEnabled = true
