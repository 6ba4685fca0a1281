package route

import (
	"errors"
	"fmt"
	"strings"

	"qr-gateway/backends"
)

// reference is the replica that the others have to be like.
type reference struct {
	name string
	info backends.Info
}

// checkSame compares what is known of the replicas before any of them runs.
func checkSame(all []Replica) error {
	var errs []error
	first := &reference{name: all[0].Name, info: all[0].Backend.Info()}
	for _, r := range all[1:] {
		info := r.Backend.Info()
		if info.Raw != first.info.Raw || info.PassParams != first.info.PassParams || info.Samples != first.info.Samples {
			errs = append(errs, fmt.Errorf("replicas %s (%s) and %s (%s) can't stand in for each other: one of them takes requests, or qr_ keys, as clients send them, or chooses no tokens by such keys",
				first.name, first.info.Backend, r.Name, info.Backend))
			continue
		}
		errs = append(errs, first.differs(r.Name, info))
	}
	return errors.Join(errs...)
}

// differs is the error for a replica that does not serve the same model. What is not known of one of the two is not compared; nothing is
// of those that pass requests on, since they need not have a prompt in tokens.
func (f *reference) differs(name string, info backends.Info) error {
	if info.Raw || f.name == name {
		return nil
	}
	var what []string
	words := func(field, a, b string) {
		if a != b && a != "" && b != "" {
			what = append(what, fmt.Sprintf("%s %s and %s", field, a, b))
		}
	}
	count := func(field string, a, b int64) {
		if a != b && a != 0 && b != 0 {
			what = append(what, fmt.Sprintf("%s %d and %d", field, a, b))
		}
	}
	words("backend", f.info.Backend, info.Backend)
	words("architecture", f.info.Architecture, info.Architecture)
	count("vocabulary", int64(f.info.Vocabulary), int64(info.Vocabulary))
	count("context", int64(f.info.Context), int64(info.Context))
	count("size in bytes", f.info.SizeBytes, info.SizeBytes)
	if len(what) == 0 {
		return nil
	}
	return fmt.Errorf("replicas %s and %s don't serve the same model: %s; give them the same model and context, or different ids",
		f.name, name, strings.Join(what, ", "))
}
