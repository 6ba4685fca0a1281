package redis

import (
	"regexp"
	"slices"
	"strings"
)

// library is what scripts share: functions, and what stands between them. Redis makes all functions of a script anew each time it
// runs, so a script gets only those that it uses, in one table: a function costs more the more locals it and the others share, since
// Lua looks for each of them in a list.
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
			all = append(all, chunk{name: name, text: rest})
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

var (
	word   = regexp.MustCompile(`[A-Za-z_]+`)
	called = regexp.MustCompile(`\b[a-z]+\(`)
)

// link is a script with what it needs of the library. What stands between functions comes first.
func (l library) link(body string) string {
	keep := l.needs(body)
	var before, functions strings.Builder
	for i, c := range l {
		switch {
		case c.name == "":
			before.WriteString(c.text)
		case keep[i]:
			functions.WriteString(c.name + " = function" + strings.TrimRight(strings.TrimPrefix(l.qualify(c.text), "F."+c.name), "\n") + ",\n")
		}
	}
	return before.String() + "local F\nF = {\n" + functions.String() + "}\n" + l.qualify(body)
}

// needs says which parts a script needs.
func (l library) needs(body string) []bool {
	need := map[string]bool{}
	for _, w := range word.FindAllString(body, -1) {
		need[w] = true
	}
	keep := make([]bool, len(l))
	for i := len(l) - 1; i >= 0; i-- { // a function uses only what stands before it
		if keep[i] = l[i].name == "" || need[l[i].name]; !keep[i] {
			continue
		}
		for _, w := range word.FindAllString(l[i].text, -1) {
			need[w] = true
		}
	}
	return keep
}

// qualify names the table before each call of a function of the library.
func (l library) qualify(text string) string {
	var b strings.Builder
	done := 0
	for _, at := range called.FindAllStringIndex(text, -1) {
		name := text[at[0] : at[1]-1]
		of := at[0] > 0 && strings.ContainsRune(".:", rune(text[at[0]-1]))
		if of || !slices.ContainsFunc(l, func(c chunk) bool { return c.name == name }) {
			continue
		}
		b.WriteString(text[done:at[0]] + "F.")
		done = at[0]
	}
	return b.String() + text[done:]
}
