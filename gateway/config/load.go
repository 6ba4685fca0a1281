package config

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"qr-gateway/sampler"
)

// Options say where a configuration comes from.
type Options struct {
	File  string         // YAML; empty is none
	Env   []string       // as os.Environ gives it
	Flags *pflag.FlagSet // those of [AddFlags], parsed; nil is none
}

// flagKeys are the flags that set a key.
func flagKeys() map[string]string {
	return map[string]string{
		"listen": "server::listen", "log-level": "log::level", "log-format": "log::format", "engine": "engine::binary",
	}
}

// modelFlag replaces a model's path.
const modelFlag = "model"

// AddFlags defines the flags that Load understands.
func AddFlags(fs *pflag.FlagSet) {
	fs.String("listen", "", "`HOST:PORT` to listen on (server.listen)")
	fs.String("log-level", "", "debug, info, warn or error (log.level)")
	fs.String("log-format", "", "text or json (log.format)")
	fs.String("engine", "", "`FILE` of qr-engine (engine.binary)")
	fs.StringArray(modelFlag, nil, "`ID=PATH`: the GGUF file of a model of the config file, or of one more without such a file")
}

// Load reads and checks a configuration. The error tells everything that is wrong, each with its path.
func Load(o Options) (Config, error) {
	env := environ(o.Env)
	v, err := merge(o, env)
	if err != nil {
		return Config{}, err
	}
	var c Config
	if err := v.UnmarshalExact(&c, strict); err != nil {
		return Config{}, plain(err)
	}
	if err := c.replacePaths(o); err != nil {
		return Config{}, err
	}
	if err := errors.Join(c.fillParams(env), c.Validate()); err != nil {
		return Config{}, fmt.Errorf("check configuration: %w", err)
	}
	return c, nil
}

// merge lays file, environment and flags over the defaults. Keys are joined by :: inside, so that a dot stays a dot.
func merge(o Options, env map[string]string) (*viper.Viper, error) {
	file, err := readFile(o.File)
	if err != nil {
		return nil, err
	}
	fromEnv, bad := fromEnv(env)
	errs := slices.Concat(unknownKeys("", file, reflect.TypeFor[Config]()), bad, checkEnv(env))
	if len(errs) > 0 {
		return nil, fmt.Errorf("read configuration: %w", errors.Join(errs...))
	}
	v := viper.NewWithOptions(viper.KeyDelimiter("::"))
	for _, l := range leaves() {
		v.SetDefault(strings.Join(l.path, "::"), l.value)
	}
	if err := errors.Join(v.MergeConfigMap(file), v.MergeConfigMap(fromEnv), bind(v, o.Flags)); err != nil {
		return nil, fmt.Errorf("merge configuration: %w", err)
	}
	return v, nil
}

// readFile returns what a file says, without any default.
func readFile(path string) (map[string]any, error) {
	if path == "" {
		return map[string]any{}, nil
	}
	v := viper.NewWithOptions(viper.KeyDelimiter("::"))
	v.SetConfigFile(path)
	v.SetConfigType("yaml")
	if err := v.ReadInConfig(); err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	settings := v.AllSettings()
	if engine, ok := settings["engine"].(map[string]any); ok {
		engine["binary"] = anchor(path, engine["binary"])
	}
	if models, ok := settings["models"].([]any); ok {
		for _, m := range models {
			if m, ok := m.(map[string]any); ok {
				m["path"] = anchor(path, m["path"])
			}
		}
	}
	return settings, nil
}

// anchor makes a path that a file names usable as it is: in the file it is relative to the file's folder.
func anchor(file string, path any) any {
	if text, ok := path.(string); ok && text != "" && !filepath.IsAbs(text) {
		return filepath.Join(filepath.Dir(file), text)
	}
	return path
}

func bind(v *viper.Viper, flags *pflag.FlagSet) error {
	if flags == nil {
		return nil
	}
	var errs []error
	for name, key := range flagKeys() {
		if f := flags.Lookup(name); f != nil && f.Changed {
			errs = append(errs, v.BindPFlag(key, f))
		}
	}
	return errors.Join(errs...)
}

// strict makes the decoder take nothing for what it isn't.
func strict(d *mapstructure.DecoderConfig) {
	d.WeaklyTypedInput = false
	d.DecodeHook = mapstructure.DecodeHookFuncType(hook)
}

// plain makes one error a line, without the decoder's own words around them.
func plain(err error) error {
	joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err)
	if !ok {
		return fmt.Errorf("read configuration: %w", err)
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		text := strings.NewReplacer("error decoding ", "", "'", "", ": is ", " is ").Replace(e.Error())
		errs = append(errs, errors.New(text))
	}
	return fmt.Errorf("read configuration: %w", errors.Join(errs...))
}

// replacePaths applies --model.
func (c *Config) replacePaths(o Options) error {
	if o.Flags == nil || o.Flags.Lookup(modelFlag) == nil {
		return nil
	}
	given, err := o.Flags.GetStringArray(modelFlag)
	if err != nil {
		return fmt.Errorf("read flag --%s: %w", modelFlag, err)
	}
	for _, pair := range given {
		id, path, ok := strings.Cut(pair, "=")
		if !ok || id == "" || path == "" {
			return fmt.Errorf("read flag --%s: it is %q; it takes ID=PATH", modelFlag, pair)
		}
		if err := c.replacePath(id, path, o.File); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) replacePath(id, path, file string) error {
	at := slices.IndexFunc(c.Models, func(m Model) bool { return m.ID == id })
	switch {
	case at >= 0:
		c.Models[at].Path = path
	case file == "":
		m := DefaultModel(id)
		m.Path = path
		c.Models = append(c.Models, m)
	default:
		ids := make([]string, len(c.Models))
		for i, m := range c.Models {
			ids[i] = m.ID
		}
		return fmt.Errorf("read flag --%s: %s has no model %q%s", modelFlag, file, id, suggest(id, ids))
	}
	return nil
}

// fillParams works out what a request to each model starts from.
func (c *Config) fillParams(env map[string]string) error {
	fromEnv := sampler.Params{}
	errs := setEnv(&fromEnv, env) // the same for every model: said once, here
	if env[alphaEnv] != "" && fromEnv.WavePeriod > 0 {
		errs = append(errs, &FieldError{Path: alphaEnv, Message: twoAlphas})
	}
	for i := range c.Models {
		m := &c.Models[i]
		m.Params = sampler.Defaults()
		for _, key := range slices.Sorted(maps.Keys(m.Defaults)) {
			if err := m.Params.Set(key, m.Defaults[key]); err != nil {
				errs = append(errs, &FieldError{Path: fmt.Sprintf("models[%d].defaults", i), Message: err.Error()})
			}
		}
		if m.Defaults["qr_alpha"] != nil && m.Params.WavePeriod > 0 {
			errs = append(errs, &FieldError{Path: fmt.Sprintf("models[%d].defaults", i), Message: twoAlphas})
		}
		if env[alphaEnv] != "" {
			m.Params.WavePeriod = 0 // the environment wins over the file, whichever way that sets alpha
		}
		setEnv(&m.Params, env)
	}
	return errors.Join(errs...)
}

const (
	alphaEnv  = "QR_ALPHA"
	twoAlphas = "alpha and a wave are both given; a wave sets alpha for every token, so give one of them"
)

// setEnv takes parameters from variables such as QR_ALPHA.
func setEnv(p *sampler.Params, env map[string]string) []error {
	var errs []error
	for _, f := range sampler.Fields() {
		text, ok := env[f.Env]
		if !ok {
			continue
		}
		if err := p.SetText(f.Key, text); err != nil {
			errs = append(errs, &FieldError{Path: f.Env, Message: err.Error()})
		}
	}
	return errs
}
