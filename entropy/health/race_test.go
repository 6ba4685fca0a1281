//go:build race

package health

// raceEnabled: the detector itself allocates.
const raceEnabled = true
