package drill

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Run is what was done and what was seen.
type Run struct {
	Exchanges []Exchange
	Faults    []Fault // as they were done
	Log       []Logged
	Slack     time.Duration // how long a fault has effects after its end
	Spare     int           // requests that the queue may hold beyond its limits
}

// Violation is a broken promise.
type Violation struct {
	Rule     string
	Exchange Exchange
}

func (v Violation) String() string { return v.Rule + ":\n" + v.Exchange.String() }

// Check reports every broken promise.
func (r Run) Check() []Violation {
	lines := map[string][]Logged{}
	for _, l := range r.Log {
		lines[l.ID] = append(lines[l.ID], l)
	}
	var out []Violation
	seen := map[string]bool{}
	for _, e := range r.Exchanges {
		for _, rule := range slices.Concat(text(e), ends(e), r.limits(e), r.cause(e), r.logged(e, lines[e.ID])) {
			out = append(out, Violation{rule, e})
		}
		if seen[e.ID] {
			out = append(out, Violation{"two requests have one id", e})
		}
		seen[e.ID] = true
	}
	return out
}

// text: what a client has is the undisturbed answer, or its beginning.
func text(e Exchange) []string {
	switch {
	case e.Ending == Whole && e.Text != e.Want:
		return []string{"a whole answer is not the undisturbed one"}
	case !strings.HasPrefix(e.Want, e.Text):
		return []string{"what came is not the beginning of the undisturbed answer"}
	}
	return nil
}

// ends: an answer ends once.
func ends(e Exchange) []string {
	switch {
	case e.Ending == Hung:
		return []string{"an answer has no end"}
	case (e.Ending == Whole || e.Ending == Failed) && e.Ends != 1:
		return []string{fmt.Sprintf("an answer has %d ends", e.Ends)}
	case e.Ends > 1:
		return []string{"an answer has two ends"}
	}
	return nil
}

var full = regexp.MustCompile(`queue is full: (\d+) of (\d+) `)

// limits: who is refused for a full queue is told when to come again, and the queue is not fuller than it may be.
func (r Run) limits(e Exchange) []string {
	if e.Status != http.StatusTooManyRequests {
		return nil
	}
	var out []string
	if e.RetryAfter < time.Second || e.RetryAfter > time.Minute {
		out = append(out, fmt.Sprintf("a full queue says to come again in %s", e.RetryAfter))
	}
	m := full.FindStringSubmatch(e.Message)
	if m == nil {
		return append(out, "a full queue does not say how full it is")
	}
	have, errHave := strconv.Atoi(m[1])
	most, errMost := strconv.Atoi(m[2])
	if errHave != nil || errMost != nil || have > most+r.Spare {
		out = append(out, "more requests wait than may")
	}
	return out
}

// cause: what goes wrong has a fault near it, and a connection breaks only when its gateway dies.
func (r Run) cause(e Exchange) []string {
	switch {
	case e.Ending == Broken && !r.struck(e, 0, Kill):
		return []string{"a connection broke while its gateway lived"}
	case e.Code == "internal_error":
		return []string{"an error without a reason"}
	case (e.Ending == Failed || e.Ending == Refused) && e.Status != 429 && !r.troubled(e):
		return []string{"a failure without a fault"}
	}
	return nil
}

// struck says that a fault of a kind was done to the gateway while the request lived.
func (r Run) struck(e Exchange, slack time.Duration, kind Kind) bool {
	return slices.ContainsFunc(r.Faults, func(f Fault) bool {
		return f.Kind == kind && f.Target == e.Gateway && f.At <= e.Ended && e.Began <= f.End()+slack
	})
}

func (r Run) troubled(e Exchange) bool {
	return slices.ContainsFunc(r.Faults, func(f Fault) bool { return f.At <= e.Ended && e.Began <= f.End()+r.Slack })
}

// logged: the gateway has one line for a request, which says what its client saw.
func (r Run) logged(e Exchange, lines []Logged) []string {
	switch {
	case len(lines) > 1:
		return []string{fmt.Sprintf("the logs have %d ends of one request", len(lines))}
	case len(lines) == 1 && lines[0].Gateway != e.Gateway:
		return []string{"another gateway's log has the request"}
	case len(lines) == 1 && e.Ending == Whole && lines[0].Status != 200:
		return []string{fmt.Sprintf("the log says %d of a whole answer", lines[0].Status)}
	case len(lines) == 1 && e.Ending == Failed && lines[0].Status == 200:
		return []string{"the log says 200 of a failed answer"}
	case len(lines) == 0 && e.Status != 0 && !r.struck(e, 0, Kill):
		return []string{"the log has no end of the request"}
	}
	return nil
}
