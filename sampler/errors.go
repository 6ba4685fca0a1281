package sampler

import (
	"errors"
	"fmt"
)

// ErrNoCandidates says that a row has no finite logit outside the banned ids.
var ErrNoCandidates = errors.New("row has no finite logit that is not banned")

// ParamError is a parameter that can't be taken. Exactly one of Allowed and Nearest may be empty.
type ParamError struct {
	Key     string
	Value   string // as it was given, shortened
	Allowed string // what the key takes; empty for an unknown key
	Nearest string // for an unknown key: the known one that looks most like it, or empty
	Reason  string // for a conflict between fields: the whole message
}

func (e *ParamError) Error() string {
	switch {
	case e.Reason != "":
		return e.Reason
	case e.Allowed != "":
		return fmt.Sprintf("%s is %s; it takes %s", e.Key, e.Value, e.Allowed)
	case e.Nearest != "":
		return fmt.Sprintf("unknown parameter %q; did you mean %q?", e.Key, e.Nearest)
	}
	return fmt.Sprintf("unknown parameter %q", e.Key)
}
