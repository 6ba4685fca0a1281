package temper

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"qr-gateway/sampler/param"
)

// ErrUnknown says that no strategy has the name.
var ErrUnknown = errors.New("unknown temperature strategy")

// kinds is the table of strategies: one line each. It is never changed, and no part of it is handed out.
var kinds = []Kind{
	{"fixed", "One temperature, qr_temperature, for every token.", nil, newFixed},
	{"edt", "Temperature follows the normalised entropy of the token: base * (H/ln V)^exponent.", edtFields(), newEDT},
	{"hvh_drift", "Temperature and min-p follow entropy and varentropy and how far both are from their running means.", hvhFields(), newHVHDrift},
	{"tt_exchange", "What min-p takes away in entropy is given back as temperature.", ttFields(), newTTExchange},
	{"evdt_tt", "Temperature and min-p are linear in entropy and varentropy; meant to be used with qr_truncate_first.", evdtFields(), newEVDT},
	{"gdt", "A bell over the normalised entropy, raised where varentropy is high and entropy low; min-p follows.", gdtFields(), newGDT},
	{"dynatemp", "Temperature goes from center - range to center + range with a power of the normalised entropy.", dynatempFields(), newDynatemp},
	{"belltemp", "A bell over the normalised entropy plus a share of varentropy; min-p follows the temperature.", belltempFields(), newBelltemp},
	{"mix_temperatures", "Two temperatures mixed as probabilities; the gate between them follows entropy and varentropy.", mixFields(), newMix},
	{"ring_buffer_ar", "Tokens among the last chosen of the answer lose a fixed amount of their logit.", ringFields(), newRing},
}

// Kinds returns the table of strategies.
func Kinds() []Kind {
	all := append(slices.Clone(kinds), gateKind())
	for i := range all {
		all[i].Fields = slices.Clone(all[i].Fields)
	}
	return all
}

// Find returns the strategy called name, or [ErrUnknown].
func Find(name string) (Kind, error) {
	names := make([]string, 0, len(kinds)+1)
	for _, k := range Kinds() {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return Kind{}, fmt.Errorf("%w %q: it is one of %s", ErrUnknown, name, strings.Join(names, ", "))
}

// number declares one parameter of a strategy. name is without its prefix.
func number(name string, low, high, def float64, help string) param.Field {
	return param.Field{
		Key: "qr_" + name, Env: "QR_" + strings.ToUpper(name), Type: param.TypeNumber,
		Min: low, Max: high, Default: def, Help: help,
	}
}

// above0 is f without its least value.
func above0(f param.Field) param.Field {
	f.MinOpen = true
	return f
}
