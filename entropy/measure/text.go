package measure

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// Text writes the report for people.
func (r *Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) // Flush returns the error
	}
	row("source", "%s", r.Source)
	if r.Device != "" {
		row("device", "%s", r.Device)
	}
	row("class", "%s", r.Class)
	row("drawn", "%d blocks of %d bytes", r.Blocks, r.BlockBytes)
	row("rate", "%s", rate(r.Rate))
	row("latency", "p50 %s, p90 %s, p99 %s, max %s", span(r.Latency.P50), span(r.Latency.P90), span(r.Latency.P99), span(r.Latency.Max))
	for _, name := range sortedNames(r.Flags) {
		row("flagged", "%d blocks: %s", r.Flags[name], name)
	}
	_, _ = fmt.Fprintln(t)
	for _, v := range r.Verdicts {
		p := ""
		if v.P != nil {
			p = fmt.Sprintf("p %.3g", *v.P)
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", v.Name, v.Word, p, v.Value)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func rate(bytes float64) string {
	switch {
	case bytes >= 1e6:
		return fmt.Sprintf("%.1f MB/s", bytes/1e6)
	case bytes >= 1e3:
		return fmt.Sprintf("%.1f kB/s", bytes/1e3)
	}
	return fmt.Sprintf("%.0f B/s", bytes)
}

func span(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Nanosecond).String()
}

func sortedNames(m map[string]int) []string { return slices.Sorted(maps.Keys(m)) }
