package link

import (
	"context"
	"fmt"
	"strings"

	"qr-gateway/backends"
)

// differences says why two workers that host a model of one id don't serve the same. What one of them doesn't know is not compared. Raw
// models are passed on, and nobody tokenises for another.
func differences(a, b *backends.Info) string {
	if a.Raw && b.Raw {
		return ""
	}
	var what []string
	note := func(field string, differ bool, x, y any) {
		if differ {
			what = append(what, fmt.Sprintf("%s %v and %v", field, x, y))
		}
	}
	note("raw", a.Raw != b.Raw, a.Raw, b.Raw)
	note("architecture", a.Architecture != b.Architecture && a.Architecture != "" && b.Architecture != "", a.Architecture, b.Architecture)
	for _, n := range []struct {
		field string
		a, b  int64
	}{
		{"vocabulary", int64(a.Vocabulary), int64(b.Vocabulary)},
		{"context", int64(a.Context), int64(b.Context)},
		{"size in bytes", a.SizeBytes, b.SizeBytes},
	} {
		note(n.field, n.a != n.b && n.a != 0 && n.b != 0, n.a, n.b)
	}
	return strings.Join(what, ", ")
}

// compare warns of models that other workers have in another form: a request that one has prepared may run on the other.
func (s *Server) compare(ctx context.Context, e *session, models []backends.Info) {
	for i := range models {
		for _, h := range s.hosts(models[i].Model) {
			if h.session == e {
				continue
			}
			what := differences(&h.info, &models[i])
			if what != "" && e.warns(models[i].Model+" of "+h.hello.Worker, what) {
				s.deps.Log.WarnContext(ctx, "two workers host different models by one id; give them the same model and context, or different ids",
					"model", models[i].Model, "worker", e.hello.Worker, "other", h.hello.Worker, "differs", what)
			}
		}
	}
}

// warns reports a difference that was not warned of yet.
func (e *session) warns(of, what string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.warned[of] == what {
		return false
	}
	if e.warned == nil {
		e.warned = map[string]string{}
	}
	e.warned[of] = what
	return true
}
