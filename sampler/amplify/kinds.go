package amplify

import (
	"fmt"
	"slices"
	"strings"

	"qr-gateway/sampler/param"
)

// Kind is one line of the table of amplifiers.
type Kind struct {
	Name   string
	Help   string
	Fields []param.Field // its own parameters
	// PerToken says that it makes one number per token only: its blocks can't be cut into one per candidate.
	PerToken bool
	// Server says that the entropy server makes the numbers, so that no bytes are amplified here.
	Server bool
	New    func(Config) (Amplifier, error)
}

// Names of the amplifiers.
const (
	Name        = "zscore_mean"
	NameECDF    = "ecdf"
	NameThought = "zscore_thought"
	NameServer  = "server"
)

// kinds is the table of amplifiers: one line each. It is never changed, and no part of it is handed out.
var kinds = []Kind{
	{Name, "Standard score of the mean of the bytes, through the normal distribution.", nil, false, false, makeZScore},
	{NameECDF, "Place of the mean of the bytes among the means of calibration blocks of the same length.", ecdfFields(), true, false, makeECDF},
	{NameThought, "As zscore_mean, with a running total over the whole answer.", nil, false, false, makeThought},
	{NameServer, "The entropy server makes the number itself.", nil, true, true, makeServer},
}

// Kinds returns the table of amplifiers.
func Kinds() []Kind {
	all := slices.Clone(kinds)
	for i := range all {
		all[i].Fields = slices.Clone(all[i].Fields)
	}
	return all
}

// Find returns the amplifier called name, or [ErrUnknown].
func Find(name string) (Kind, error) {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		if k.Name == name {
			k.Fields = slices.Clone(k.Fields)
			return k, nil
		}
		names[i] = k.Name
	}
	return Kind{}, fmt.Errorf("%w %q: it is one of %s", ErrUnknown, name, strings.Join(names, ", "))
}
