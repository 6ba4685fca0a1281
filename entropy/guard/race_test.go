//go:build race

package guard

// raceEnabled: the detector itself allocates.
const raceEnabled = true
