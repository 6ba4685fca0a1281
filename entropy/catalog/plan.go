package catalog

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/guard"
)

// planned is a spec that was checked as far as it can be without opening it.
type planned struct {
	spec    Spec
	kind    Kind
	options map[string]any // without the guard's
	guard   guard.Config
	opening time.Duration // that the options give it, beyond what every source has
	claimed bool          // claimed_entropy was given
	needs   []string      // sources that are opened first
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// Validate checks specs without opening anything.
func Validate(specs []Spec) error {
	_, err := plan(specs)
	return err
}

// plan checks specs. All errors are told, not only the first.
func plan(specs []Spec) ([]planned, error) {
	if !slices.ContainsFunc(specs, func(s Spec) bool { return s.Name == SystemName }) {
		specs = append(slices.Clip(specs), Spec{Name: SystemName, Type: "system"})
	}
	var plans []planned
	var all []error
	seen := map[string]bool{}
	for _, s := range specs {
		p, err := planOne(s)
		if err == nil && seen[s.Name] {
			err = errors.New("there are two sources of this name: rename one")
		}
		if err != nil {
			all = append(all, &entropy.Error{Kind: entropy.KindConfig, Source: s.Name, Message: "check configuration", Err: err})
			continue
		}
		seen[s.Name] = true
		plans = append(plans, p)
	}
	if err := errors.Join(all...); err != nil {
		return nil, err
	}
	return plans, withRemedy(checkNeeds(plans))
}

func planOne(s Spec) (planned, error) {
	if !nameForm.MatchString(s.Name) {
		return planned{}, fmt.Errorf("name %q: want up to 63 letters, digits, '_', '.' and '-', a letter or digit first", s.Name)
	}
	k, err := kindOf(s)
	if err != nil {
		return planned{}, err
	}
	own, guards := split(s.Options)
	p := planned{spec: s, kind: k, options: own, guard: guard.DefaultConfig()}
	if k.Members != nil {
		if p.needs, err = k.Members(own); err != nil {
			return planned{}, err
		}
		p.guard.Health = false // the members' own guards test the bytes
	}
	if k.Members != nil || k.Class == entropy.ClassReplay {
		p.guard.StartUpSamples = 0 // a recording or stream is handed out from its first byte
	}
	_, p.claimed = guards["claimed_entropy"]
	if err := decode(guards, &p.guard); err != nil {
		return planned{}, err
	}
	if p.opening, err = check(k, own); err != nil {
		return planned{}, fmt.Errorf("type %s: %w", k.Type, err)
	}
	if s.Policy != "" {
		p.guard.Policy = guard.Policy(s.Policy)
	}
	if s.Fallback != "" {
		p.needs = append(slices.Clip(p.needs), s.Fallback)
	}
	switch {
	case p.guard.Policy == guard.Fallback && s.Fallback == "":
		return planned{}, errors.New("policy fallback needs the name of a second source: set fallback, e.g. fallback: system")
	case p.guard.Policy != guard.Fallback && s.Fallback != "":
		return planned{}, fmt.Errorf("fallback %q is never used under policy %s: set policy: fallback or remove it", s.Fallback, p.guard.Policy)
	}
	return p, p.guard.Validate()
}

// check reads the options of a type and has the type look at them. opening is the time that they give to the opening of the source.
func check(k Kind, own map[string]any) (opening time.Duration, err error) {
	cfg := k.Options()
	if err := decode(own, cfg); err != nil {
		return 0, withGuardKeys(err, own, k)
	}
	if o, ok := cfg.(interface{ Opening() time.Duration }); ok {
		opening = o.Opening()
	}
	if v, ok := cfg.(interface{ Validate() error }); ok {
		err = v.Validate()
	}
	return opening, err
}

// withGuardKeys finds a misspelt option among those of the guard as well.
func withGuardKeys(err error, own map[string]any, k Kind) error {
	if !errors.Is(err, ErrUnknownOption) {
		return err
	}
	known := append(Keys(k.Options()), Keys(&guard.Config{})...)
	for _, key := range sortedKeys(own) {
		if !slices.Contains(known, key) {
			return unknown(key, known)
		}
	}
	return err
}

func kindOf(s Spec) (Kind, error) {
	k, ok := Find(s.Type)
	if !ok {
		if like := nearest(s.Type, Types()); s.Type != "" && like != "" {
			return Kind{}, fmt.Errorf("unknown type %q: did you mean %s? The types are %s", s.Type, like, strings.Join(Types(), ", "))
		}
		return Kind{}, fmt.Errorf("unknown type %q: want one of %s", s.Type, strings.Join(Types(), ", "))
	}
	if other, ok := Find(s.Name); ok && other.Type != k.Type {
		return Kind{}, fmt.Errorf("the name is that of type %s, but the type is %s: choose another name", other.Type, k.Type)
	}
	return k, nil
}

// checkNeeds refuses names that nobody has and rings of sources that wait for each other.
func checkNeeds(plans []planned) error {
	needs := map[string][]string{}
	names := make([]string, 0, len(plans))
	for _, p := range plans {
		needs[p.spec.Name] = p.needs
		names = append(names, p.spec.Name)
	}
	slices.Sort(names)
	for _, p := range plans {
		for _, n := range p.needs {
			if _, ok := needs[n]; !ok {
				return &entropy.Error{
					Kind: entropy.KindConfig, Source: p.spec.Name, Message: fmt.Sprintf("it needs a source %q that is not configured", n),
					Hint: "the sources are " + strings.Join(names, ", "),
				}
			}
		}
		if ring := ringFrom(p.spec.Name, needs, nil); ring != nil {
			return &entropy.Error{
				Kind: entropy.KindConfig, Source: p.spec.Name, Message: "sources fall back to each other: " + strings.Join(ring, " -> "),
				Hint: "let the last one fall back to system",
			}
		}
	}
	return nil
}

// ringFrom walks what name needs and returns the way back to a source on the way, or nil.
func ringFrom(name string, needs map[string][]string, way []string) []string {
	if slices.Contains(way, name) {
		return append(way, name)
	}
	way = append(slices.Clip(way), name)
	for _, n := range needs[name] {
		if ring := ringFrom(n, needs, way); ring != nil {
			return ring
		}
	}
	return nil
}
