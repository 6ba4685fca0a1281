package config

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"qr-gateway/configs/presets"
	"qr-gateway/sampler"
)

// settingPrefix stands before the keys of the process in the table, and not in the file.
const settingPrefix = "qr_"

// fillProcess lays the file and the environment over the defaults of what belongs to the process.
func (c *Config) fillProcess(env map[string]string) error {
	c.Process, c.Origins = sampler.ProcessDefaults(), map[string]string{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
		key := settingPrefix + strings.TrimPrefix(name, settingPrefix)
		c.Origins[key] = "file"
		if err := c.Process.Set(key, c.Settings[name]); err != nil {
			message := unkeyed(err)
			if _, err := sampler.Key(key); err == nil {
				message = "is a parameter of requests; put " + key + " under parameters:"
			}
			errs = append(errs, &FieldError{Path: "process." + name, Message: message})
		}
	}
	for _, f := range sampler.ProcessFields() {
		text, ok := env[f.Env]
		if !ok {
			continue
		}
		c.Origins[f.Key] = "environment"
		if f.Key == instancesKey {
			text = oneLine(text)
		}
		if err := c.Process.SetText(f.Key, text); err != nil {
			errs = append(errs, &FieldError{Path: f.Env, Message: unkeyed(err)})
		}
	}
	if err := c.Process.Validate(); err != nil && len(errs) == 0 {
		errs = append(errs, &FieldError{Path: "process", Message: unkeyed(err)})
	}
	c.warnUnused()
	return errors.Join(errs...)
}

// warnUnused tells of fields that are set and do nothing here. Their help says why.
func (c *Config) warnUnused() {
	for _, f := range sampler.ProcessFields() {
		if why, unused := strings.CutPrefix(f.Help, "Accepted for qr-sampler's sake: "); unused && c.Origins[f.Key] != "" {
			c.Warnings = append(c.Warnings, f.Env+": not used: "+why)
		}
	}
}

// unkeyed writes an error about a key of the process as the file has it.
func unkeyed(err error) string { return strings.ReplaceAll(err.Error(), settingPrefix, "") }

// oneLine lets JSON in a variable span lines.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// loadProfiles adds the presets of qr-sampler's folder. It needn't have any.
func (c *Config) loadProfiles() error {
	dir := filepath.Join(c.Process.ProfilesDir, "presets")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		c.Warnings = append(c.Warnings, "QR_PROFILES_DIR: "+dir+" does not exist; only the presets of the program are there")
		c.Library, err = presets.BuiltIn()
		return err
	}
	var err error
	if c.Library, err = presets.Load(dir); err != nil {
		return &FieldError{Path: "QR_PROFILES_DIR", Message: err.Error()}
	}
	return nil
}
