package account

import (
	"qr-gateway/backends"
	"qr-gateway/sampler"
)

// Fixed is the strategy that never looks at a row.
const Fixed = "fixed"

// Strategy is what sets the temperature.
func Strategy(p *sampler.Params) string {
	if p.Bypass {
		return Fixed
	}
	return p.Strategy
}

// drawsNumbers reports whether anything about a token is left to chance.
func drawsNumbers(p *sampler.Params) bool {
	if p.UsesLookahead() {
		return p.LookaheadChoice == sampler.ChoiceSample && p.Temperature > 0
	}
	return p.Cut().NeedsU()
}

// Describe adds what both know of an answer that p asked for.
func Describe(s *backends.DecodeStats, p *sampler.Params, t *Tap, l *Ledger) {
	s.Preset, s.Strategy = p.Preset, Strategy(p)
	s.EntropySource, s.Amplifier = none, none
	if l.numbers > 0 || drawsNumbers(p) {
		s.EntropySource, s.Policy, s.Amplifier = t.from.Name, t.from.Policy, t.amp
		_, _, s.EntropyBytes = t.Info()
		s.Thought = t.thought()
	}
	s.USource = s.Amplifier
	l.Stats(s)
}
