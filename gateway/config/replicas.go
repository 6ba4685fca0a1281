package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-viper/mapstructure/v2"
)

// Replica is one of the backends that serve a model. What it says of the engine or server replaces what the model says.
type Replica struct {
	Name   string         `mapstructure:"name"`   // for logs, metrics and the model list
	Weight float64        `mapstructure:"weight"` // how much a worker of it does, next to the others' workers
	Keys   map[string]any `mapstructure:",remain"`
}

// Route says how one of a model's replicas is picked.
type Route struct {
	Tries      int     `mapstructure:"tries"`       // replicas that a request may be given to, before its client has anything of the answer
	Sticky     bool    `mapstructure:"sticky"`      // requests that begin alike go to one replica, which has their beginning in its cache
	StickyLoad float64 `mapstructure:"sticky_load"` // by how much more that one may be loaded than another: a share of its workers
	Breaker    Breaker `mapstructure:"breaker"`
}

// Breaker says when a replica is left alone.
type Breaker struct {
	Failures int           `mapstructure:"failures"` // that make it so
	Window   time.Duration `mapstructure:"window"`   // in which they are counted
	Open     time.Duration `mapstructure:"open"`     // until one request tries again
}

// Member is a replica as a model of its own.
type Member struct {
	Name   string
	Weight float64
	Model  Model
}

func defaultRoute() Route {
	return Route{
		Tries: 3, Sticky: true, StickyLoad: 0.5,
		Breaker: Breaker{Failures: 5, Window: 30 * time.Second, Open: 10 * time.Second},
	}
}

// modelOnly are the keys of a model that its replicas have in common.
func modelOnly() []string {
	return []string{"id", "name", "description", "prompts", "defaults", "aliases", "replicas", "route"}
}

// replicaKeys are the keys of a replica with their types: its own, and the model's that describe an engine or a server.
func replicaKeys() map[string]reflect.Type {
	out := map[string]reflect.Type{"name": reflect.TypeFor[string](), "weight": reflect.TypeFor[float64]()}
	for f := range fieldsOf(reflect.TypeFor[Model]()) {
		if tag := f.Tag.Get("mapstructure"); tag != "-" && !slices.Contains(modelOnly(), tag) {
			out[tag] = f.Type
		}
	}
	return out
}

// fieldsOf iterates over the fields of a struct.
func fieldsOf(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

// fillMembers works out what each replica is.
func (c *Config) fillMembers() []error {
	var errs []error
	for i := range c.Models {
		m := &c.Models[i]
		m.Members = nil
		for j, r := range m.Replicas {
			member, err := m.member(r)
			if err != nil {
				errs = append(errs, atPath(fmt.Sprintf("models[%d].replicas[%d].", i, j), err)...)
			}
			m.Members = append(m.Members, member)
		}
	}
	return errs
}

// Backends are the model's replicas, each as a model of its own: a model without any is its only one.
func (m Model) Backends() []Member {
	if len(m.Replicas) == 0 {
		return []Member{{Name: m.ID, Weight: 1, Model: m}}
	}
	return m.Members
}

// engine is a model of which only what is given is replaced.
type engine Model

// member lays a replica over its model.
func (m *Model) member(r Replica) (Member, error) {
	out := engine(*m)
	out.Aliases, out.Replicas, out.Members = nil, nil, nil
	out.Headers = maps.Clone(m.Headers) // what is given is added to it
	cfg := &mapstructure.DecoderConfig{Result: &out, ErrorUnused: true}
	strict(cfg)
	cfg.DecodeHook = mapstructure.DecodeHookFuncType(inherit)
	dec, err := mapstructure.NewDecoder(cfg)
	if err != nil {
		return Member{}, fmt.Errorf("read replica %s: %w", r.Name, err)
	}
	err = dec.Decode(given(r.Keys))
	return Member{Name: r.Name, Weight: r.Weight, Model: Model(out)}, err
}

// inherit is hook, but that keys with values of their own keep what the model says of those that are left out.
func inherit(from, to reflect.Type, data any) (any, error) {
	if m, ok := data.(map[string]any); ok && to.Kind() == reflect.Struct {
		return given(m), nil
	}
	return hook(from, to, data)
}

// given are the keys that have a value.
func given(keys map[string]any) map[string]any {
	out := maps.Clone(keys)
	maps.DeleteFunc(out, func(_ string, value any) bool { return value == nil })
	return out
}

// atPath makes field errors of what the decoder says.
func atPath(path string, err error) []error {
	var errs []error
	for _, e := range parts(plain(err)) {
		key, message, found := strings.Cut(strings.TrimPrefix(e.Error(), "read configuration: "), " is ")
		if !found {
			errs = append(errs, errors.New(path+e.Error()))
			continue
		}
		errs = append(errs, &FieldError{Path: path + key, Message: "is " + message})
	}
	return errs
}

// replicaDefaults fills in what a replica leaves out.
func replicaDefaults(m map[string]any) map[string]any {
	out := map[string]any{"weight": 1.0}
	maps.Copy(out, given(m))
	return out
}

// overDefaults lays what is given over the defaults of a struct, one level deep.
func overDefaults(defaults any, over map[string]any) map[string]any {
	out := map[string]any{}
	v := reflect.ValueOf(defaults)
	for f := range fieldsOf(v.Type()) {
		out[f.Tag.Get("mapstructure")] = v.FieldByIndex(f.Index).Interface()
	}
	maps.Copy(out, given(over))
	return out
}

func (r Route) check(c *checks) {
	c.between("route.tries", r.Tries, 1, 64)
	if !(r.StickyLoad >= 0 && r.StickyLoad <= 1) {
		c.fail("route.sticky_load", "is %g; it takes 0 to 1", r.StickyLoad)
	}
	c.between("route.breaker.failures", r.Breaker.Failures, 1, 1_000_000)
	if r.Breaker.Window < time.Second {
		c.fail("route.breaker.window", "is %s; it takes 1s or more", r.Breaker.Window)
	}
	c.positive("route.breaker.open", r.Breaker.Open)
}

// checkReplicas checks each replica as the model that it is.
func (m Model) checkReplicas(path string, backends []string) []error {
	var errs []error
	first := map[string]int{}
	for j, member := range m.Backends() {
		c := &checks{path: path}
		if len(m.Replicas) > 0 {
			c.path = fmt.Sprintf("%sreplicas[%d].", path, j)
			member.check(c)
		}
		if i, taken := first[member.Name]; taken && member.Name != "" {
			c.fail("name", "is %q, which replicas[%d] has already; names must differ", member.Name, i)
		} else {
			first[member.Name] = j
		}
		member.Model.checkEngine(c)
		c.oneOf("backend", member.Model.Backend, backends...)
		errs = append(errs, c.errs...)
	}
	return errs
}

func (m Member) check(c *checks) {
	switch {
	case m.Name == "":
		c.fail("name", "is missing; logs and metrics name the replica by it")
	case !shortName(m.Name):
		c.fail("name", "is %q; it takes at most 64 printable characters without spaces", m.Name)
	}
	if !(m.Weight > 0 && m.Weight <= 1000) {
		c.fail("weight", "is %g; it takes more than 0, and at most 1000", m.Weight)
	}
}

func shortName(name string) bool {
	return len(name) <= 64 && !strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
}

// checkAliases holds that a name stands for one model.
func checkAliases(models []Model) []error {
	owner := map[string]string{}
	for i, m := range models {
		owner[m.ID] = fmt.Sprintf("models[%d] has as its id", i)
	}
	var errs []error
	for i, m := range models {
		for j, alias := range m.Aliases {
			c := &checks{path: fmt.Sprintf("models[%d].", i)}
			field := fmt.Sprintf("aliases[%d]", j)
			switch by, taken := owner[alias]; {
			case !validID(alias):
				c.fail(field, "is %q; it takes 1 to 128 printable characters without spaces", alias)
			case taken:
				c.fail(field, "is %q, which %s; a name stands for one model", alias, by)
			default:
				owner[alias] = fmt.Sprintf("models[%d] has as an alias", i)
			}
			errs = append(errs, c.errs...)
		}
	}
	return errs
}

func validID(id string) bool {
	return id != "" && len(id) <= 128 && !strings.ContainsFunc(id, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
}
