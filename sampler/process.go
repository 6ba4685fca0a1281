package sampler

import (
	"qr-gateway/sampler/param"
)

// Process are the values that belong to the whole process: how sources are reached and kept. They have the names of qr-sampler's
// infrastructure fields, so that an environment written for it works. No request sets them. Start from [ProcessDefaults].
type Process struct {
	GRPCServerAddress    string  // host:port or unix:///path
	GRPCTimeoutMS        float64 // of one call, at most
	GRPCRetryCount       int     // attempts after the first
	GRPCMode             string  // unary, server_streaming or bidi_streaming
	GRPCMethodPath       string
	GRPCStreamMethodPath string // empty: no streaming
	GRPCDrawMethodPath   string // empty: no draws
	GRPCDrawStreamPath   string // empty: no streamed draws
	GRPCAPIKey           string // secret; empty: none
	GRPCAPIKeyHeader     string // metadata key
	GRPCPreprobe         bool   // look for the server before the first call

	FallbackMode           string // error, system or mock_uniform
	EntropySourceInstances string // JSON object of named sources
	PreinitEntropySources  string // names, with commas

	QRNGMaxBytesPerRequest   int // quota of a provider; 0 is none
	QRNGMaxRequestsPerMinute int
	QRNGMaxBytesPerDay       int

	CBWindowSize             int     // calls that the adaptive timeout is made of
	CBMinTimeoutMS           float64 // its floor
	CBTimeoutMultiplier      float64 // times the 99th percentile
	CBRecoveryWindowS        float64 // first time that the breaker stays open, in seconds
	CBRecoveryWindowMaxS     float64 // longest time
	CBMaxConsecutiveFailures int

	ApplyParallelRows int

	OEConditioning string
	OESources      string // names, with commas; empty: all
	OEParallel     bool
	OETimeout      float64 // seconds

	ProfilesDir       string
	EntropyStatusFile string
	SamplerPerfFile   string
}

// process is the table of what belongs to the process.
var process = newRows(processRows(), false)

// ProcessFields returns a copy of the table of what belongs to the process.
func ProcessFields() []Field { return process.fields() }

// ProcessDefaults returns what a process is that nothing was said of.
func ProcessDefaults() Process {
	var p Process
	process.defaults(&p)
	return p
}

// Set takes a value of the configuration file, by its key. The error is a *[ParamError].
func (p *Process) Set(key string, value any) error {
	return p.take(key, func(f *Field) (param.Value, error) { return f.Take(key, value, param.Loose) })
}

// SetText takes a value from the environment, by its key. The error is a *[ParamError].
func (p *Process) SetText(key, text string) error {
	return p.take(key, func(f *Field) (param.Value, error) { return f.TakeText(key, text) })
}

func (p *Process) take(key string, read func(*Field) (param.Value, error)) error {
	r, ok := process.named[key]
	if !ok {
		return param.Unknown(key, process.names)
	}
	v, err := read(&r.Field)
	if err != nil {
		return err
	}
	r.store(p, v)
	return nil
}

// Value reads any field by its key, as encoding/json would decode it; an integer is an int64. ok is false for an unknown key.
func (p *Process) Value(key string) (value any, ok bool) {
	r, ok := process.named[key]
	if !ok {
		return nil, false
	}
	return r.Go(r.load(p)), true
}

// Validate checks every field against the table, and fields against each other. The error is a *[ParamError].
func (p *Process) Validate() error {
	if err := process.check(p); err != nil {
		return err
	}
	if p.CBRecoveryWindowMaxS < p.CBRecoveryWindowS {
		return conflict("qr_cb_recovery_window_max_s", "qr_cb_recovery_window_max_s is %v, which is less than qr_cb_recovery_window_s, %v; make it at least that",
			p.CBRecoveryWindowMaxS, p.CBRecoveryWindowS)
	}
	return nil
}
