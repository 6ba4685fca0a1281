package profiles

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	nameForm     = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)
	flagForm     = regexp.MustCompile(`^--[a-z][a-z0-9-]*$`)
	variableForm = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)
	placeForm    = regexp.MustCompile(`\{[^}]*\}`)
)

// check names everything that is wrong with a profile. file is its file's name without .yaml.
func (p Profile) check(file string) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case !nameForm.MatchString(p.Name):
		wrong("name is %q; it takes up to 63 of a-z, 0-9, _, . and -, a letter or digit first", p.Name)
	case p.Name != file:
		wrong("name is %q; it takes the name of the file, %q", p.Name, file)
	}
	for _, key := range []struct {
		name  string
		empty bool
	}{
		{"title", p.Title == ""},
		{"description", p.Description == ""},
		{"backend", p.Backend == ""},
		{"platforms", len(p.Platforms) == 0},
		{"devices", len(p.Devices) == 0},
		{"versions", len(p.Versions) == 0},
		{"serve.command", len(p.Serve.Command) == 0},
	} {
		if key.empty {
			wrong("%s is missing", key.name)
		}
	}
	errs = append(errs, p.checkVersions(), p.checkServe(), p.checkModels())
	return errors.Join(errs...)
}

func (p Profile) checkVersions() error {
	var errs []error
	for i, v := range p.Versions {
		at := fmt.Sprintf("versions[%d]", i)
		switch {
		case v.Package == "" || v.Version == "" || v.Note == "":
			errs = append(errs, fmt.Errorf("%s: package, version and note are needed", at))
		case v.Status != Tested && v.Status != Untested:
			errs = append(errs, fmt.Errorf("%s: status is %q; it takes %s or %s", at, v.Status, Tested, Untested))
		case v.Runner != "v1" && v.Runner != "v2":
			errs = append(errs, fmt.Errorf("%s: runner is %q; it takes v1 or v2", at, v.Runner))
		case !slices.Contains(p.Devices, v.Device):
			errs = append(errs, fmt.Errorf("%s: device is %q; devices has %s", at, v.Device, strings.Join(p.Devices, ", ")))
		}
	}
	return errors.Join(errs...)
}

// checkModels holds the list of models to the versions: a model can't be known to work where no version was tested.
func (p Profile) checkModels() error {
	var errs []error
	for i, m := range p.Models {
		tested := slices.ContainsFunc(p.Versions, func(v Version) bool {
			return v.Status == Tested && v.Device == m.Device && v.Runner == m.Runner
		})
		switch {
		case m.Name == "":
			errs = append(errs, fmt.Errorf("models[%d]: name is missing", i))
		case !tested:
			errs = append(errs, fmt.Errorf("models[%d]: %s can't be known to work on %s with runner %s: no such version is tested", i, m.Name, m.Device, m.Runner))
		}
	}
	if !slices.ContainsFunc(p.Versions, func(v Version) bool { return v.Status == Tested }) && len(p.Untested) == 0 {
		errs = append(errs, errors.New("untested is missing, although no version is tested"))
	}
	return errors.Join(errs...)
}

func (p Profile) checkServe() error {
	errs := []error{checkStart("serve", p.Serve.Flags, p.Serve.Environment)}
	for i, v := range p.Variants {
		at := fmt.Sprintf("variants[%d]", i)
		if !slices.Contains(p.Devices, v.Device) {
			errs = append(errs, fmt.Errorf("%s: device is %q; devices has %s", at, v.Device, strings.Join(p.Devices, ", ")))
		}
		errs = append(errs, checkStart(at, v.Flags, v.Environment))
	}
	for i, a := range p.Avoid {
		if a.Setting == "" || a.Why == "" {
			errs = append(errs, fmt.Errorf("avoid[%d]: setting and why are needed", i))
		}
	}
	return errors.Join(errs...)
}

func checkStart(at string, flags []Flag, environment []Variable) error {
	var errs []error
	for i, f := range flags {
		if !flagForm.MatchString(f.Flag) || f.Why == "" {
			errs = append(errs, fmt.Errorf("%s.flags[%d]: %q; a flag is --like-this and says why", at, i, f.Flag))
		}
	}
	for i, v := range environment {
		if !variableForm.MatchString(v.Name) || v.Why == "" {
			errs = append(errs, fmt.Errorf("%s.environment[%d]: %q; a variable is LIKE_THIS and says why", at, i, v.Name))
		}
		for _, place := range placeForm.FindAllString(v.Value, -1) {
			if place != "{plugin}" && place != "{socket}" {
				errs = append(errs, fmt.Errorf("%s.environment[%d]: %s has %s; there are {plugin} and {socket}", at, i, v.Name, place))
			}
		}
	}
	return errors.Join(errs...)
}
