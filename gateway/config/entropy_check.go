package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"qr-gateway/entropy"
	"qr-gateway/entropy/catalog"
)

var sourceForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// check looks at every source by itself, then at how they refer to each other, then at the options of their types.
func (e Entropy) check() []error {
	var errs []error
	first := map[string]string{}
	for _, s := range e.Sources {
		c := &checks{path: s.From + "."}
		s.check(c, e.names())
		if other, taken := first[s.Name]; taken && s.Name != "" {
			c.fail("name", "is %q, which %s has already; names must differ", s.Name, other)
		}
		first[s.Name] = s.From
		errs = append(errs, c.errs...)
	}
	if err := e.checkRing(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, e.checkNames()...)
	if len(errs) > 0 {
		return errs
	}
	return e.checkOptions()
}

func (s EntropySource) check(c *checks, names []string) {
	switch {
	case s.Name == "":
		c.fail("name", "is missing; requests name the source by it")
	case !sourceForm.MatchString(s.Name):
		c.fail("name", "is %q; it takes up to 63 letters, digits, _, . and -, a letter or digit first", s.Name)
	}
	if s.Type == "" {
		c.fail("type", "is missing; it is one of %s", strings.Join(catalog.Types(), ", "))
	}
	if s.Policy != "" {
		c.oneOf("policy", s.Policy, PolicyStrict, PolicyFallback, PolicyObserve)
	}
	switch {
	case s.Fallback != "" && s.Policy != PolicyFallback:
		c.fail("fallback", "is %q, but the policy is %q; write policy: fallback", s.Fallback, s.Policy)
	case s.Fallback == "" && s.Policy == PolicyFallback:
		c.fail("fallback", "is missing; policy fallback needs the name of a second source, such as system")
	case s.Fallback != "" && !slices.Contains(names, s.Fallback):
		c.fail("fallback", "is %q, which is no source; there are %s", s.Fallback, strings.Join(names, ", "))
	}
}

// checkRing refuses sources that wait for each other.
func (e Entropy) checkRing() error {
	next := map[string]string{}
	for _, s := range e.Sources {
		next[s.Name] = s.Fallback
	}
	for _, s := range e.Sources {
		way := []string{s.Name}
		for at := s.Fallback; at != ""; at = next[at] {
			way = append(way, at)
			if at == s.Name {
				return &FieldError{Path: s.From + ".fallback", Message: "goes round in a ring: " + strings.Join(way, " -> ")}
			}
			if slices.Index(way, at) < len(way)-1 {
				break // a ring that s only leads to: told at its members
			}
		}
	}
	return nil
}

// checkNames finds names of sources that there are none of.
func (e Entropy) checkNames() []error {
	c := &checks{path: "entropy."}
	names := e.names()
	for i, n := range e.Allow {
		if !slices.Contains(names, n) {
			c.fail(fmt.Sprintf("allow[%d]", i), "is %q, which is no source; there are %s", n, strings.Join(names, ", "))
		}
	}
	switch {
	case !slices.Contains(names, e.Default):
		c.fail("default", "is %q, which is no source; there are %s", e.Default, strings.Join(names, ", "))
	case len(e.Allow) > 0 && !slices.Contains(e.Allow, e.Default):
		c.fail("default", "is %q, which entropy.allow does not list; add it there", e.Default)
	}
	return c.errs
}

// checkOptions asks the table of source types, without opening anything.
func (e Entropy) checkOptions() []error {
	specs := make([]catalog.Spec, len(e.Sources))
	from := map[string]string{}
	for i, s := range e.Sources {
		specs[i] = s.Spec()
		from[s.Name] = s.From
	}
	var errs []error
	for _, err := range parts(catalog.Validate(specs)) {
		path := "entropy"
		var own *entropy.Error
		if errors.As(err, &own) && from[own.Source] != "" {
			path = from[own.Source]
		}
		errs = append(errs, &FieldError{Path: path, Message: err.Error()})
	}
	return errs
}

// Spec is the source as the catalog opens it.
func (s EntropySource) Spec() catalog.Spec {
	return catalog.Spec{Name: s.Name, Type: s.Type, Policy: s.Policy, Fallback: s.Fallback, Options: s.Options}
}

// parts are the errors that were joined to one.
func parts(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// checkSources finds models whose requests would start from a source that they may not name.
func (c Config) checkSources() []error {
	names := c.SourceNames()
	var errs []error
	for _, m := range c.Models {
		if p := m.Params.EntropySource; p != "" && !slices.Contains(names, p) {
			errs = append(errs, &FieldError{Path: "model " + m.ID, Message: fmt.Sprintf(
				"qr_entropy_source is %q (%s), which is no source that a request may name; there are %s", p, m.Origins["qr_entropy_source"], strings.Join(names, ", "))})
		}
	}
	return errs
}
