package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"qr-gateway/sampler"
)

// SystemSource is the operating system's generator, which is always there.
const SystemSource = "system"

// Names of sources that qr-sampler has and nobody needs to configure.
const (
	grpcSource   = "quantum_grpc"
	mockSource   = "mock_uniform"
	timingSource = "timing_noise"
	openSource   = "openentropy"
)

const instancesKey = "qr_entropy_source_instances"

// Policies of a source: what happens when it fails.
const (
	PolicyStrict   = "strict"   // the request ends with an error
	PolicyFallback = "fallback" // another source serves, and every token says so
	PolicyObserve  = "observe"  // a failed health test is only noted
)

// Entropy are the sources of the bytes.
type Entropy struct {
	Default string          `mapstructure:"default"` // source of requests that name none
	Allow   []string        `mapstructure:"allow"`   // sources that a request may name; empty: all
	Sources []EntropySource `mapstructure:"sources"` // beside system; Load adds those that the environment implies
}

// EntropySource is one named source.
type EntropySource struct {
	Name     string         `mapstructure:"name"`
	Type     string         `mapstructure:"type"`
	Policy   string         `mapstructure:"policy"`   // strict, fallback or observe; empty is strict
	Fallback string         `mapstructure:"fallback"` // name of the second source, with policy fallback
	Options  map[string]any `mapstructure:",remain"`  // of the type

	From string `mapstructure:"-"` // where it comes from, for errors
}

// SourceNames are the sources that a request may name, in the order of the configuration, system first.
func (c Config) SourceNames() []string {
	names := c.Entropy.names()
	if len(c.Entropy.Allow) == 0 {
		return names
	}
	return slices.DeleteFunc(names, func(n string) bool { return !slices.Contains(c.Entropy.Allow, n) })
}

// names are all sources.
func (e Entropy) names() []string {
	names := []string{SystemSource}
	for _, s := range e.Sources {
		if s.Name != SystemSource {
			names = append(names, s.Name)
		}
	}
	return names
}

// fillEntropy adds the sources that the environment of qr-sampler implies: its instances, and those of its built-in names that somebody
// chose.
func (c *Config) fillEntropy(env map[string]string) error {
	for i := range c.Entropy.Sources {
		c.Entropy.Sources[i].From = fmt.Sprintf("entropy.sources[%d]", i)
	}
	instances, err := c.instances()
	if err != nil {
		return err
	}
	c.Entropy.Sources = append(c.Entropy.Sources, instances...)
	wanted := c.chosen()
	if c.givenGRPC() {
		wanted = append(wanted, grpcSource)
	}
	for _, name := range wanted {
		c.imply(name)
	}
	for _, s := range slices.Clone(c.Entropy.Sources) {
		c.imply(s.Fallback)
	}
	c.preferEnv(env)
	return nil
}

// preferEnv makes the source that the environment chooses for requests the default, unless it says another one. A name of no source stays
// with the models, whose check refuses it.
func (c *Config) preferEnv(env map[string]string) {
	name := cmp.Or(env["QR_ENTROPY_SOURCE"], env["QR_ENTROPY_SOURCE_TYPE"])
	if env["QR_ENTROPY_DEFAULT"] == "" && slices.Contains(c.SourceNames(), name) {
		c.Entropy.Default = name
	}
}

// chosen are the sources that something of the process selects.
func (c *Config) chosen() []string {
	names := append([]string{c.Entropy.Default}, c.Entropy.Allow...)
	for _, m := range c.Models {
		names = append(names, m.Params.EntropySource)
	}
	return names
}

// givenGRPC says that somebody described the server of the reference's one gRPC source.
func (c *Config) givenGRPC() bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(c.Origins)), func(key string) bool {
		return strings.HasPrefix(key, "qr_grpc_") && key != "qr_grpc_preprobe_enabled"
	})
}

// imply adds a source of qr-sampler's that has no entry of its own.
func (c *Config) imply(name string) {
	if name == "" || slices.Contains(c.Entropy.names(), name) {
		return
	}
	if s, ok := c.implied(&c.Process, name, name); ok {
		c.Entropy.Sources = append(c.Entropy.Sources, c.withFallback(s))
	}
}

// withFallback gives a source of the environment the policy of qr_fallback_mode.
func (c *Config) withFallback(s EntropySource) EntropySource {
	s.Policy = PolicyStrict
	second := map[string]string{"system": SystemSource, "mock_uniform": mockSource}[c.Process.FallbackMode]
	if second != "" && second != s.Name && s.Type != "mock" && s.Type != SystemSource {
		s.Policy, s.Fallback = PolicyFallback, second
	}
	return s
}

// implied is a source as qr-sampler describes it. typ is one of its types.
func (c *Config) implied(p *sampler.Process, name, typ string) (EntropySource, bool) {
	s := EntropySource{Name: name, From: "environment"}
	switch typ {
	case grpcSource:
		s.Type, s.Options = "grpc", c.grpcOptions(p)
	case openSource:
		s.Type, s.Options = "openentropy", openOptions(p)
	case mockSource:
		s.Type = "mock"
	case timingSource:
		s.Type = "timing"
	case SystemSource:
		s.Type = SystemSource
	default:
		return EntropySource{}, false
	}
	return s, true
}

func (c *Config) grpcOptions(p *sampler.Process) map[string]any {
	out := map[string]any{
		"address": p.GRPCServerAddress, "mode": p.GRPCMode, "method_path": p.GRPCMethodPath, "stream_method_path": p.GRPCStreamMethodPath,
		"draw_method_path": p.GRPCDrawMethodPath, "draw_stream_method_path": p.GRPCDrawStreamPath, "retries": p.GRPCRetryCount,
	}
	if p.GRPCAPIKey != "" {
		out["api_key"], out["api_key_header"] = p.GRPCAPIKey, p.GRPCAPIKeyHeader
	}
	c.grpcTimes(p, out)
	return out
}

// grpcTimes adds the limits of time and the breaker's as far as somebody set them. qr-sampler's own defaults are not: with 5 ms at the least
// and 10 s of an open breaker a busy server would be given up on.
func (c *Config) grpcTimes(p *sampler.Process, out map[string]any) {
	def := sampler.ProcessDefaults()
	for _, o := range []struct {
		key, option string
		differs     bool
		value       any
	}{
		{"qr_grpc_timeout_ms", "timeout", p.GRPCTimeoutMS != def.GRPCTimeoutMS, milliseconds(p.GRPCTimeoutMS)},
		{"qr_cb_min_timeout_ms", "timeout_floor", p.CBMinTimeoutMS != def.CBMinTimeoutMS, milliseconds(p.CBMinTimeoutMS)},
		{"qr_cb_timeout_multiplier", "timeout_multiplier", p.CBTimeoutMultiplier != def.CBTimeoutMultiplier, p.CBTimeoutMultiplier},
		{"qr_cb_window_size", "timeout_window", p.CBWindowSize != def.CBWindowSize, p.CBWindowSize},
		{"qr_cb_max_consecutive_failures", "breaker_failures", p.CBMaxConsecutiveFailures != def.CBMaxConsecutiveFailures, p.CBMaxConsecutiveFailures},
		{"qr_cb_recovery_window_s", "breaker_open", p.CBRecoveryWindowS != def.CBRecoveryWindowS, milliseconds(p.CBRecoveryWindowS * 1000)},
		{"qr_cb_recovery_window_max_s", "breaker_open_max", p.CBRecoveryWindowMaxS != def.CBRecoveryWindowMaxS, milliseconds(p.CBRecoveryWindowMaxS * 1000)},
	} {
		if o.differs || c.Origins[o.key] != "" {
			out[o.option] = o.value
		}
	}
}

// openOptions ask OpenEntropy for the one source that is named, or else for its pool.
func openOptions(p *sampler.Process) map[string]any {
	return map[string]any{
		"conditioning": p.OEConditioning, "source": p.OESources, "timeout": milliseconds(p.OETimeout * 1000),
	}
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// overrides are the keys of the process that an instance may have otherwise.
var overrides = [...]string{"grpc_server_address", "grpc_api_key", "grpc_mode", "grpc_timeout_ms", "grpc_retry_count"}

// instances are the named sources of QR_ENTROPY_SOURCE_INSTANCES.
func (c *Config) instances() ([]EntropySource, error) {
	where := "process.entropy_source_instances"
	if c.Origins[instancesKey] == "environment" {
		where = strings.ToUpper(instancesKey)
	}
	var described map[string]map[string]any
	if err := json.Unmarshal([]byte(c.Process.EntropySourceInstances), &described); err != nil {
		return nil, &FieldError{Path: where, Message: `is not a JSON object of objects, such as {"lane_a": {"type": "quantum_grpc"}}: ` + err.Error()}
	}
	var out []EntropySource
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(described)) {
		s, err := c.instance(name, described[name])
		s.From = where
		if err != nil {
			errs = append(errs, &FieldError{Path: where + "." + name, Message: err.Error()})
			continue
		}
		out = append(out, c.withFallback(s))
	}
	return out, errors.Join(errs...)
}

func (c *Config) instance(name string, says map[string]any) (EntropySource, error) {
	typ, _ := says["type"].(string)
	p := c.Process
	for _, key := range slices.Sorted(maps.Keys(says)) {
		switch {
		case key == "type":
		case !slices.Contains(overrides[:], key):
			return EntropySource{}, fmt.Errorf("%s can't be set here; an instance takes type, %s", key, strings.Join(overrides[:], ", "))
		default:
			if err := p.Set(settingPrefix+key, says[key]); err != nil {
				return EntropySource{}, errors.New(unkeyed(err))
			}
		}
	}
	s, ok := c.implied(&p, name, typ)
	types := []string{SystemSource, grpcSource, timingSource, mockSource, openSource}
	switch {
	case !ok:
		return EntropySource{}, fmt.Errorf("type is %q; it takes one of %s", typ, strings.Join(types, ", "))
	case slices.Contains(types, name):
		return EntropySource{}, errors.New("the name is that of a type; choose another one")
	}
	return s, nil
}
