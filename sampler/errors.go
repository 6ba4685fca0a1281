package sampler

import (
	"errors"

	"qr-gateway/sampler/param"
)

// ErrNoCandidates says that a row has no finite logit outside the banned ids.
var ErrNoCandidates = errors.New("row has no finite logit that is not banned")

// ParamError is a parameter that can't be taken.
type ParamError = param.Error
