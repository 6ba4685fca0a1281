package memory

import "time"

// meter measures how fast a line drains: the mean time between two jobs leaving it for a node, while jobs wait. Times when
// nothing waits don't count, so an idle hour doesn't look like a slow one. Old departures fade: the last 20 or so matter.
type meter struct {
	departures float64
	seconds    float64   // during which they left
	last       float64   // seconds that the newest took
	since      time.Time // of the last departure, or of the first job that waits; zero when none waits
}

// fade is the weight that a departure keeps when another follows.
const fade = 0.95

// start notes that something waits.
func (m *meter) start(now time.Time) {
	if m.since.IsZero() {
		m.since = now
	}
}

// stop notes that nothing waits any more.
func (m *meter) stop() { m.since = time.Time{} }

// depart notes that a job left for a node; called while since still tells how long that took.
func (m *meter) depart(now time.Time) {
	if m.since.IsZero() {
		return
	}
	m.last = now.Sub(m.since).Seconds()
	m.departures = m.departures*fade + 1
	m.seconds = m.seconds*fade + m.last
	m.since = now
}

// measured is the time between departures as it was; 0 is unknown.
func (m *meter) measured() time.Duration {
	if m.departures == 0 {
		return 0
	}
	return time.Duration(m.seconds / m.departures * float64(time.Second))
}

// least is the shortest time between departures that there is reason to expect; 0 is unknown. The first departures of a line say little:
// they count the time in which it filled.
func (m *meter) least() time.Duration {
	if m.departures < sure {
		return 0
	}
	return min(m.measured(), time.Duration(m.last*float64(time.Second)))
}

// sure is what three departures weigh.
const sure = 1 + fade + fade*fade - 1e-9

// gap is the time between departures: as measured, or as long as nothing has left, whichever is more. 0 is unknown.
func (m *meter) gap(now time.Time) time.Duration {
	var standing time.Duration
	if !m.since.IsZero() {
		standing = now.Sub(m.since)
	}
	return max(m.measured(), standing)
}
