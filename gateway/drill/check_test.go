package drill_test

import (
	"strings"
	"testing"
	"time"

	"qr-gateway/gateway/drill"
)

func exchange(change func(*drill.Exchange)) drill.Exchange {
	e := drill.Exchange{
		Request: drill.Request{ID: "a", Gateway: "g", Want: "one two three"},
		Answer:  drill.Answer{Began: 10 * time.Second, Ended: 12 * time.Second, Ending: drill.Whole, Status: 200, Text: "one two three", Ends: 1},
	}
	change(&e)
	return e
}

func line(status int) []drill.Logged {
	return []drill.Logged{{ID: "a", Gateway: "g", Status: status}}
}

func refuse(message string, after time.Duration) func(e *drill.Exchange) {
	return func(e *drill.Exchange) {
		e.Ending, e.Text, e.Status, e.Message, e.RetryAfter = drill.Refused, "", 429, message, after
	}
}

func TestCheck(t *testing.T) {
	kill := []drill.Fault{{Kind: drill.Kill, Target: "g", At: 11 * time.Second, For: time.Second}}
	other := []drill.Fault{{Kind: drill.Kill, Target: "h", At: 11 * time.Second, For: time.Second}}
	early := []drill.Fault{{Kind: drill.Freeze, Target: "w", At: time.Second, For: time.Second}}
	for name, c := range map[string]struct {
		change func(*drill.Exchange)
		faults []drill.Fault
		log    []drill.Logged
		want   string // part of the rule; empty: none is broken
	}{
		"whole":              {func(*drill.Exchange) {}, nil, line(200), ""},
		"missing token":      {func(e *drill.Exchange) { e.Text = "one three" }, kill, line(200), "not the undisturbed"},
		"token twice":        {func(e *drill.Exchange) { e.Text = "one two two three" }, kill, line(200), "not the undisturbed"},
		"short":              {func(e *drill.Exchange) { e.Text = "one two" }, kill, line(200), "not the undisturbed"},
		"left":               {func(e *drill.Exchange) { e.Ending, e.Text, e.Ends = drill.Left, "one t", 0 }, nil, line(499), ""},
		"left, out of order": {func(e *drill.Exchange) { e.Ending, e.Text, e.Ends = drill.Left, "two one", 0 }, nil, line(499), "beginning"},
		"no end":             {func(e *drill.Exchange) { e.Ends = 0 }, nil, line(200), "0 ends"},
		"two ends":           {func(e *drill.Exchange) { e.Ends = 2 }, nil, line(200), "2 ends"},
		"hung":               {func(e *drill.Exchange) { e.Ending, e.Text = drill.Hung, "" }, kill, line(200), "no end"},
		"gateway killed":     {func(e *drill.Exchange) { e.Ending, e.Text, e.Ends = drill.Broken, "one", 0 }, kill, nil, ""},
		"another killed":     {func(e *drill.Exchange) { e.Ending, e.Text, e.Ends = drill.Broken, "one", 0 }, other, line(499), "gateway lived"},
		"failed":             {func(e *drill.Exchange) { e.Ending, e.Text, e.Code = drill.Failed, "one", "engine_lost" }, other, line(503), ""},
		"failed in peace":    {func(e *drill.Exchange) { e.Ending, e.Text, e.Code = drill.Failed, "one", "engine_lost" }, early, line(503), "without a fault"},
		"no reason":          {func(e *drill.Exchange) { e.Ending, e.Text, e.Code = drill.Failed, "", "internal_error" }, other, line(500), "without a reason"},
		"full":               {refuse("queue is full: 3 of 3 requests are waiting", 2*time.Second), nil, line(429), ""},
		"no time told":       {refuse("queue is full: 3 of 3 requests are waiting", 0), nil, line(429), "come again in"},
		"spare":              {refuse("queue is full: 4 of 3 requests are waiting", 2*time.Second), nil, line(429), ""},
		"too full":           {refuse("queue is full: 5 of 3 requests are waiting", 2*time.Second), nil, line(429), "more requests wait than may"},
		"full of what":       {refuse("no", 2*time.Second), nil, line(429), "how full"},
		"refused in peace":   {func(e *drill.Exchange) { e.Ending, e.Text, e.Status = drill.Refused, "", 503 }, early, line(503), "without a fault"},
		"nobody there":       {func(e *drill.Exchange) { e.Ending, e.Text, e.Status = drill.Refused, "", 0 }, kill, nil, ""},
		"not logged":         {func(*drill.Exchange) {}, other, nil, "no end of the request"},
		"logged twice":       {func(*drill.Exchange) {}, kill, append(line(200), line(200)...), "2 ends of one"},
		"logged as lost":     {func(*drill.Exchange) {}, kill, line(500), "says 500"},
		"logged as well":     {func(e *drill.Exchange) { e.Ending, e.Text = drill.Failed, "" }, other, line(200), "says 200"},
		"logged elsewhere":   {func(*drill.Exchange) {}, nil, []drill.Logged{{ID: "a", Gateway: "h", Status: 200}}, "another gateway"},
	} {
		t.Run(name, func(t *testing.T) {
			run := drill.Run{Exchanges: []drill.Exchange{exchange(c.change)}, Faults: c.faults, Log: c.log, Slack: 4 * time.Second, Spare: 1}
			got := run.Check()
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("got %v, want nothing", got)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0].Rule, c.want)):
				t.Errorf("got %v, want one with %q", got, c.want)
			}
		})
	}
}

func TestCheckFindsOneIDTwice(t *testing.T) {
	same := exchange(func(*drill.Exchange) {})
	run := drill.Run{Exchanges: []drill.Exchange{same, same}, Log: line(200)}
	if got := run.Check(); len(got) != 1 || !strings.Contains(got[0].String(), "one id") {
		t.Errorf("got %v", got)
	}
}
