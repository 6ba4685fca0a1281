package redis

import (
	"regexp"
	"strings"
)

// library is what scripts share: functions, and what stands between them. Redis makes all functions of a script anew each time it
// runs, so a script gets only those that it uses.
type library []chunk

// chunk is a function with its name, or anything else without one.
type chunk struct{ name, text string }

// parse splits Lua text at its functions on the top level, which begin with "local function" and end with "end" at the margin.
func parse(text string) library {
	var all library
	inside := false
	for line := range strings.Lines(text) {
		rest, begins := strings.CutPrefix(line, "local function ")
		switch {
		case begins:
			name, _, _ := strings.Cut(rest, "(")
			all = append(all, chunk{name: name, text: line})
			inside = !strings.HasSuffix(strings.TrimSpace(line), " end")
		case inside:
			all[len(all)-1].text += line
			inside = strings.TrimRight(line, "\n") != "end"
		case !strings.HasPrefix(line, "--"):
			all = append(all, chunk{text: line})
		}
	}
	return all
}

// link is what a script needs of the library, in its order.
func (l library) link(body string) string {
	names := regexp.MustCompile(`[A-Za-z_]+`)
	need := map[string]bool{}
	for _, word := range names.FindAllString(body, -1) {
		need[word] = true
	}
	keep := make([]bool, len(l))
	for i := len(l) - 1; i >= 0; i-- { // a function uses only what stands before it
		if keep[i] = l[i].name == "" || need[l[i].name]; !keep[i] {
			continue
		}
		for _, word := range names.FindAllString(l[i].text, -1) {
			need[word] = true
		}
	}
	var b strings.Builder
	for i, c := range l {
		if keep[i] {
			b.WriteString(c.text)
		}
	}
	return b.String()
}
