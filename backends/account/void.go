package account

import (
	"slices"

	"qr-gateway/sampler"
)

// counted is what a ledger was before the token that was counted last.
type counted struct {
	ok                                    bool
	told                                  bool
	tokens, numbers, fallbacks, pipelined int
	flags                                 []string
}

// note remembers the account as it is before a token.
func (l *Ledger) note(ev *sampler.Evidence) {
	l.before = counted{
		ok: true, tokens: l.tokens, numbers: l.numbers, fallbacks: l.fallbacks, pipelined: l.pipelined,
	}
	if ev != nil {
		l.before.flags = ev.Flags
	}
}

// Void takes the token back that was counted last, once: the row that it was chosen from was not the one that counted. Its draw, if there was
// one, is among those that were not used.
func (l *Ledger) Void() {
	b := l.before
	if !b.ok {
		return
	}
	if l.numbers > b.numbers {
		l.discarded++
	}
	l.tokens, l.numbers, l.fallbacks, l.pipelined = b.tokens, b.numbers, b.fallbacks, b.pipelined
	for _, name := range b.flags {
		if l.flagged[name]--; l.flagged[name] == 0 {
			delete(l.flagged, name)
		}
	}
	if b.told {
		l.untell()
	}
	l.before = counted{}
}

// Spill counts a draw that no token came of. ev is what it was made of; nil where there was none.
func (l *Ledger) Spill(ev *sampler.Evidence) {
	if ev == nil {
		return
	}
	l.discarded += 1 + ev.Discarded
	if a := ev.Asked; a != nil && !a.Hit {
		l.discarded++
	}
}

// untell forgets the newest record.
func (l *Ledger) untell() {
	ordered := slices.Concat(l.records[l.oldest:], l.records[:l.oldest])
	l.records, l.oldest = ordered[:len(ordered)-1], 0
}
