package sampler

import (
	"slices"

	"qr-gateway/sampler/amplify"
	"qr-gateway/sampler/param"
	"qr-gateway/sampler/temper"
)

// Values of the fields that take one of a few words.
const (
	DecoderAuto      = "auto"
	DecoderPlain     = "plain"
	DecoderLookahead = "lookahead"

	CurveArticle   = "article"
	CurveCrossfade = "crossfade"
	CurveSeed      = "seed"

	ModeLazy        = "lazy"
	ModeFull        = "full"
	ModeFullInverse = "full_inverse"
	ModeBounded     = "bounded"

	ChoiceSample = "sample"
	ChoiceArgmax = "argmax"

	LogNone    = "none"
	LogSummary = "summary"
	LogFull    = "full"
)

// Headings of the documentation.
const (
	groupRequest   = "The request as a whole"
	groupChoice    = "Choice of a token"
	groupPenalties = "Penalties and bias"
	groupStrategy  = "Temperature strategies"
	groupLookahead = "Look-ahead"
	groupEntropy   = "Entropy"
)

// table is the parameter table.
var table = newRows(slices.Concat(requestRows(), choiceRows(), penaltyRows(), strategyRows(), lookaheadRows(), entropyRows()), true)

// Fields returns a copy of the parameter table.
func Fields() []Field { return table.fields() }

// Defaults returns the parameters of a request that asks for nothing.
func Defaults() Params {
	var p Params
	table.defaults(&p)
	return p
}

// FieldByName returns the field with this key or alias.
func FieldByName(name string) (Field, bool) {
	r, ok := table.named[name]
	if !ok {
		return Field{}, false
	}
	return r.Field, true
}

// strategyRows are the choice of a strategy and what the strategies declare.
func strategyRows() []row[Params] {
	var names []string
	var declared []param.Field
	for _, k := range temper.Kinds() {
		names = append(names, k.Name)
		declared = append(declared, inGroup(groupStrategy+": "+k.Name, k.Fields)...)
	}
	return append([]row[Params]{{
		Field{
			Key: "qr_temperature_strategy", Group: groupStrategy, Env: "QR_TEMPERATURE_STRATEGY", Type: TypeString, Enum: names, Default: "fixed",
			Help: "How the temperature of a token follows from the distribution at hand. fixed is qr_temperature throughout.",
		},
		func(p *Params) any { return &p.Strategy },
	}}, moreRows(declared, 0)...)
}

// amplifierFields are what the amplifiers declare.
func amplifierFields() (names []string, declared []param.Field) {
	for _, k := range amplify.Kinds() {
		names = append(names, k.Name)
		declared = append(declared, inGroup(groupEntropy+": "+k.Name, k.Fields)...)
	}
	return names, declared
}

func inGroup(group string, fields []param.Field) []param.Field {
	out := slices.Clone(fields)
	for i := range out {
		out[i].Group = group
	}
	return out
}

// amplifierSlots is where the amplifiers' parameters begin in Params.more; the strategies' come before.
const amplifierSlots = 80

// moreRows places fields that have no Go name, from a slot on. Of a field that two declare, the first counts.
func moreRows(fields []param.Field, from int) []row[Params] {
	var out []row[Params]
	for _, f := range fields {
		if slices.ContainsFunc(out, func(r row[Params]) bool { return r.Key == f.Key }) {
			continue
		}
		slot := from + len(out)
		out = append(out, row[Params]{f, func(p *Params) any { return &p.more[slot] }})
	}
	return out
}
