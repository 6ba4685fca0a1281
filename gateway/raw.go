package gateway

import (
	"encoding/json"
	"errors"

	"github.com/gin-gonic/gin"

	"qr-gateway/backends"
	"qr-gateway/gateway/api"
)

// raw says that the request is passed on as it is, and so is its answer.
func (a *answer) raw() bool { return a.call.Request.Raw != nil }

// chosen says that the answer's tokens are chosen by our parameters.
func (a *answer) chosen() bool { return !a.raw() || a.call.Request.Sampled }

// complete adds what is known of the answer to the end of one that came as it is and was sampled. Others may have the same res.
func (a *answer) complete(res *backends.Result) (*backends.Result, error) {
	if !a.raw() || !a.chosen() {
		return res, nil
	}
	if len(res.Last) == 0 {
		return nil, errNoAnswer
	}
	out := *res
	var err error
	out.Last, err = a.head.Complete(res.Last, res)
	return &out, err
}

// passing is how a request to the model i is passed on.
func (f format) passing(i backends.Info, id, task string) api.Passing {
	return api.Passing{Path: f.path, Model: id, Task: task, Params: i.PassParams}
}

// verbatim is the chunker of answers that are passed on: what comes is what goes.
type verbatim struct{}

func (verbatim) First() any                 { return nil }
func (verbatim) Delta(e backends.Event) any { return e.Raw }
func (verbatim) End(res *backends.Result, _ bool) []any {
	if len(res.Last) == 0 {
		return nil
	}
	return []any{res.Last}
}

// errNoAnswer is a defect of a backend.
var errNoAnswer = errors.New("the backend ended well and sent no answer")

// replyRaw sends a whole answer as it came.
func (s *Server) replyRaw(c *gin.Context, raw json.RawMessage) {
	if len(raw) == 0 {
		s.fail(c, errNoAnswer)
		return
	}
	s.bound(c)
	if err := api.WriteRaw(c.Writer, raw); err != nil {
		recordOf(c).err = err
	}
}
