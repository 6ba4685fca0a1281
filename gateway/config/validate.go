package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"qr-gateway/sampler"
)

// FieldError is a value that can't be taken.
type FieldError struct {
	Path    string // as in the file, e.g. models[1].workers
	Message string // what is wrong, and what it takes
}

func (e *FieldError) Error() string { return e.Path + ": " + e.Message }

// checks collects what is wrong below one path.
type checks struct {
	path string
	errs []error
}

func (c *checks) fail(field, format string, args ...any) {
	c.errs = append(c.errs, &FieldError{Path: c.path + field, Message: fmt.Sprintf(format, args...)})
}

func (c *checks) between(field string, value, least, most int) {
	if value < least || value > most {
		c.fail(field, "is %d; it takes %d to %d", value, least, most)
	}
}

func (c *checks) oneOf(field, value string, words ...string) {
	if !slices.Contains(words, value) {
		c.fail(field, "is %q; it takes %s", value, strings.Join(words, " or "))
	}
}

func (c *checks) positive(field string, value time.Duration) {
	if value <= 0 {
		c.fail(field, "is %s; it takes more than 0", value)
	}
}

// Validate reports everything that is wrong, each with its path.
func (c Config) Validate() error {
	errs := slices.Concat(c.Server.check(), c.Log.check(), c.Queue.check(), c.Engine.check(), c.Entropy.check(), c.Records.check(), c.Tasks.check(), c.Redis.check(), c.Link.check(), c.Worker.check(), c.Sidecar.check(), c.checkModels(), c.checkSources())
	return errors.Join(errs...)
}

func (s Server) check() []error {
	c := &checks{path: "server."}
	if host, port, err := net.SplitHostPort(s.Listen); err != nil || port == "" || strings.Contains(host, "/") {
		c.fail("listen", "is %q; it takes host:port, e.g. 127.0.0.1:8080", s.Listen)
	}
	if s.BodyLimit < 1<<10 {
		c.fail("body_limit", "is %s; it takes 1KiB or more", s.BodyLimit)
	}
	c.positive("keep_alive", s.KeepAlive)
	c.positive("write_timeout", s.WriteTimeout)
	c.positive("drain_timeout", s.DrainTimeout)
	if u, err := url.Parse(s.PublicURL); s.PublicURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		c.fail("public_url", "is %q; it takes an address such as https://models.example.org, or nothing", s.PublicURL)
	}
	for i, o := range s.CORSOrigins {
		if u, err := url.Parse(o); o != "*" && (err != nil || u.Scheme == "" || u.Host == "" || u.Path != "") {
			c.fail(fmt.Sprintf("cors_origins[%d]", i), "is %q; it takes an origin such as https://chat.example.org, or *", o)
		}
	}
	return c.errs
}

func (r Records) check() []error {
	c := &checks{path: "records."}
	c.between("keep", r.Keep, 0, 1_000_000)
	if r.Bytes < 0 {
		c.fail("bytes", "is %s; it takes 0 or more", r.Bytes)
	}
	return c.errs
}

func (t Tasks) check() []error {
	c := &checks{path: "tasks."}
	c.oneOf("mode", t.Mode, TasksPlain, TasksSame)
	c.between("max_tokens", t.MaxTokens, 0, 1<<30)
	return c.errs
}

func (l Log) check() []error {
	c := &checks{path: "log."}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, l.Level) {
		c.fail("level", "is %q; it takes debug or info or warn or error (%s also takes none, summary or full, for qr_log_level)", l.Level, logLevelEnv)
	}
	c.oneOf("format", l.Format, "text", "json")
	return c.errs
}

func (q Queue) check() []error {
	const most = 1 << 40
	c := &checks{path: "queue."}
	c.between("jobs", q.Jobs, 1, 1_000_000)
	c.between("jobs_per_key", q.JobsPerKey, 1, 1_000_000)
	c.between("tokens", q.Tokens, 1, most)
	c.between("tokens_per_key", q.TokensPerKey, 1, most)
	if q.Bytes < 1<<10 {
		c.fail("bytes", "is %s; it takes 1KiB or more", q.Bytes)
	}
	if q.BytesPerKey < 1<<10 {
		c.fail("bytes_per_key", "is %s; it takes 1KiB or more", q.BytesPerKey)
	}
	if q.Age < 0 {
		c.fail("age", "is %s; it takes 0 (never) or more", q.Age)
	}
	if q.WaitTimeout < 0 {
		c.fail("wait_timeout", "is %s; it takes 0 (no limit) or more", q.WaitTimeout)
	}
	if q.Lease < 100*time.Millisecond {
		c.fail("lease", "is %s; it takes 100ms or more", q.Lease)
	}
	if q.Repeats != RepeatsJoin && q.Repeats != RepeatsRefuse {
		c.fail("repeats", "is %q; it takes %s or %s", q.Repeats, RepeatsJoin, RepeatsRefuse)
	}
	c.positive("heartbeat", q.Heartbeat)
	if q.Heartbeat > q.Lease/2 {
		c.fail("heartbeat", "is %s; it takes at most half of queue.lease, which is %s", q.Heartbeat, q.Lease)
	}
	return c.errs
}

func (e Engine) check() []error {
	c := &checks{path: "engine."}
	c.positive("wait_ready", e.WaitReady)
	c.positive("stall_timeout", e.StallTimeout)
	return c.errs
}

func (c Config) checkModels() []error {
	models, backends := c.Models, c.Backends
	if len(models) == 0 {
		if c.Modelless {
			return nil
		}
		return []error{&FieldError{Path: "models", Message: "there are none; list one with an id and a path, or start with --model ID=PATH"}}
	}
	var errs []error
	first := map[string]int{}
	for i, m := range models {
		c := &checks{path: fmt.Sprintf("models[%d].", i)}
		m.check(c)
		c.errs = append(c.errs, m.checkReplicas(c.path, backends)...)
		if j, taken := first[m.ID]; taken && m.ID != "" {
			c.fail("id", "is %q, which models[%d] has already; ids must differ", m.ID, j)
		} else {
			first[m.ID] = i
		}
		errs = append(errs, c.errs...)
	}
	return append(errs, checkAliases(models)...)
}

func (m Model) check(c *checks) {
	switch {
	case m.ID == "":
		c.fail("id", "is missing; clients name the model by it")
	case !validID(m.ID):
		c.fail("id", "is %q; it takes at most 128 printable characters without spaces", m.ID)
	}
	m.Route.check(c)
	if err := m.Params.Validate(); err != nil {
		c.fail("defaults", "%s%s", err, m.origin(err))
	}
	m.checkVLLM(c)
}

// checkEngine checks what describes an engine or a server.
func (m Model) checkEngine(c *checks) {
	if m.Backend == BackendLlama && m.Path == "" {
		c.fail("path", "is missing; it is the model's GGUF file (or start with --model %s=PATH)", m.ID)
	}
	if m.Context != 0 {
		c.between("context", m.Context, 64, 1<<24)
	}
	m.checkUpstream(c)
	c.between("workers", m.Workers, 1, m.mostWorkers())
	c.between("threads", m.Threads, 0, 1024)
	c.between("group", m.Group, 1, 64)
	if c.between("chunk", m.Chunk, 64, 512); m.Chunk%64 != 0 && m.Chunk > 64 {
		c.fail("chunk", "is %d; it takes a multiple of 64", m.Chunk)
	}
	c.between("gpu_layers", m.GPULayers, -1, 10_000)
	c.oneOf("kv_type", m.KVType, "f16", "f32")
	c.between("poll", m.Poll, 0, 100)
	if m.Delay < 0 {
		c.fail("delay", "is %s; it takes 0 (none) or more", m.Delay)
	}
}

// origin says where the parameter that an error is about comes from, if that isn't the model's own lines.
func (m Model) origin(err error) string {
	var own *sampler.ParamError
	if !errors.As(err, &own) || m.Origins[own.Key] == "" {
		return ""
	}
	return " (" + own.Key + " comes from: " + m.Origins[own.Key] + ")"
}
