package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

// Options say where a configuration comes from.
type Options struct {
	File     string         // YAML; empty is none
	Env      []string       // as os.Environ gives it
	EnvFile  string         // NAME=value lines that the environment wins over; empty is none, and --env-file replaces it
	Backends []string       // that a model may name; none: llama and fake
	Flags    *pflag.FlagSet // those of [AddFlags], parsed; nil is none

	Modelless bool // there need not be a model
}

// flagKeys are the flags that set a key.
func flagKeys() map[string]string {
	return map[string]string{
		"listen": "server::listen", "log-level": "log::level", "log-format": "log::format", "engine": "engine::binary",
	}
}

const (
	modelFlag   = "model"    // replaces a model's path
	envFileFlag = "env-file" // names a file of variables
)

// AddFlags defines the flags that Load understands.
func AddFlags(fs *pflag.FlagSet) {
	fs.String("listen", "", "`HOST:PORT` to listen on (server.listen)")
	fs.String("log-level", "", "debug, info, warn or error (log.level)")
	fs.String("log-format", "", "text or json (log.format)")
	fs.String("engine", "", "`FILE` of qr-engine (engine.binary)")
	fs.String(envFileFlag, "", "`FILE` of NAME=value lines, as a .env file; the environment wins over it")
	fs.StringArray(modelFlag, nil, "`ID=PATH`: the GGUF file of a model of the config file, or of one more without such a file")
}

// Load reads and checks a configuration. The error tells everything that is wrong, each with its path.
func Load(o Options) (Config, error) {
	env, errs := environ(o)
	if len(errs) > 0 {
		return Config{}, fmt.Errorf("read configuration: %w", errors.Join(errs...))
	}
	v, warnings, err := merge(o, env)
	if err != nil {
		return Config{}, err
	}
	c := Config{Warnings: warnings, Backends: o.Backends, Modelless: o.Modelless}
	if len(c.Backends) == 0 {
		c.Backends = Default().Backends
	}
	if err := v.UnmarshalExact(&c, strict); err != nil {
		return Config{}, plain(err)
	}
	if err := c.replacePaths(o); err != nil {
		return Config{}, err
	}
	if err := errors.Join(c.fill(env)...); err != nil {
		return Config{}, fmt.Errorf("check configuration: %w", err)
	}
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("check configuration: %w", blame(err, o.Flags, env))
	}
	return c, nil
}

// blame adds to each error about a key of a section the flag or variable that set it. Without one it was the file.
func blame(err error, flags *pflag.FlagSet, env map[string]string) error {
	setter := map[string]string{}
	for _, l := range leaves() {
		if env[l.env()] != "" {
			setter[strings.Join(l.path, ".")] = l.env()
		}
	}
	for name, key := range flagKeys() {
		if flags != nil && flags.Changed(name) {
			setter[strings.ReplaceAll(key, "::", ".")] = "--" + name
		}
	}
	all := parts(err)
	for i, e := range all {
		var own *FieldError
		if errors.As(e, &own) && setter[own.Path] != "" {
			all[i] = &FieldError{Path: own.Path, Message: own.Message + " (set by " + setter[own.Path] + ")"}
		}
	}
	return errors.Join(all...)
}

// fill works out what follows from the file and the environment.
func (c *Config) fill(env map[string]string) []error {
	errs := append(c.fillMembers(), c.fillProcess(env), c.loadPresets())
	if errors.Join(errs...) == nil { // else the parameters and sources would be blamed for what is wrong there
		errs = append(errs, c.fillParams(env), c.fillEntropy(env))
	}
	return errs
}

// merge lays file, environment and flags over the defaults. Keys are joined by :: inside, so that a dot stays a dot.
func merge(o Options, env map[string]string) (v *viper.Viper, warnings []string, err error) {
	file, err := readFile(o.File)
	if err != nil {
		return nil, nil, err
	}
	fromEnv, bad := fromEnv(env)
	warnings, strange := checkEnv(env)
	errs := slices.Concat(unknownKeys("", file, reflect.TypeFor[Config]()), bad, strange)
	if len(errs) > 0 {
		return nil, nil, fmt.Errorf("read configuration: %w", errors.Join(errs...))
	}
	v = viper.NewWithOptions(viper.KeyDelimiter("::"))
	for _, l := range leaves() {
		v.SetDefault(strings.Join(l.path, "::"), l.value)
	}
	if err := errors.Join(v.MergeConfigMap(file), v.MergeConfigMap(fromEnv), bind(v, o.Flags)); err != nil {
		return nil, nil, fmt.Errorf("merge configuration: %w", err)
	}
	return v, warnings, nil
}

// readFile returns what a file says, without any default.
func readFile(path string) (map[string]any, error) {
	if path == "" {
		return map[string]any{}, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	v := viper.NewWithOptions(viper.KeyDelimiter("::"))
	v.SetConfigType("yaml")
	if err := v.ReadConfig(bytes.NewReader(data)); err != nil {
		text := strings.NewReplacer("While parsing config: ", "", "map[string]interface {}", "keys with values").Replace(err.Error())
		return nil, fmt.Errorf("read configuration %s: %s", path, text)
	}
	if err := sameKeys(data); err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	settings := v.AllSettings()
	if engine, ok := settings["engine"].(map[string]any); ok {
		engine["binary"] = anchor(path, engine["binary"])
	}
	anchorCluster(path, settings)
	if presets, ok := settings["presets"].(map[string]any); ok && presets["dir"] != nil {
		presets["dir"] = anchor(path, presets["dir"])
	}
	for _, m := range entries(settings["models"]) {
		for _, member := range append(entries(m["replicas"]), m) {
			member["path"] = anchor(path, member["path"])
			member["api_key_file"] = anchor(path, member["api_key_file"])
		}
	}
	if entropy, ok := settings["entropy"].(map[string]any); ok {
		for _, s := range entries(entropy["sources"]) {
			anchorOptions(path, s)
		}
	}
	return settings, nil
}

// sameKeys refuses keys that differ by case only: which of them counted would be chance.
func sameKeys(data []byte) error {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return err
	}
	var errs []error
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		first := map[string]string{}
		for i, c := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 0 {
				folded := strings.ToLower(c.Value)
				if other, taken := first[folded]; taken && other != c.Value {
					errs = append(errs, fmt.Errorf("line %d: %s is there too, as %s; case makes no difference, so give one of them", c.Line, c.Value, other))
				}
				first[folded] = c.Value
			}
			walk(c)
		}
	}
	walk(&root)
	return errors.Join(errs...)
}

// entries are the maps of a list.
func entries(list any) []map[string]any {
	items, _ := list.([]any)
	var out []map[string]any
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// anchorOptions makes the files that a source names usable: its path, and all that ends in _file or is a TLS file.
func anchorOptions(file string, options map[string]any) {
	for key, value := range options {
		if key == "path" || strings.HasSuffix(key, "_file") || slices.Contains([]string{"tls_ca", "tls_cert", "tls_key"}, key) {
			options[key] = anchor(file, value)
		}
	}
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
