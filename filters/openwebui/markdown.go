package openwebui

import (
	"regexp"
	"strings"
)

// code is what stands as code in a description: keys, and JSON.
var code = regexp.MustCompile(`\bqr_[a-z0-9_]+|\{"[^}]*\}`)

// special are the characters that Markdown, or the HTML within it, would take for more than themselves.
var special = strings.NewReplacer(
	`\`, `\\`, "*", `\*`, "_", `\_`, "<", "&lt;", ">", "&gt;", "&", "&amp;", "[", `\[`, "]", `\]`, "`", "\\`", "~", `\~`, "#", `\#`, "^", `\^`, "$", `\$`, "|", `\|`,
)

// markdown is text that reads in Markdown as it does plainly, with its keys as code.
func markdown(text string) string {
	var b strings.Builder
	at := 0
	for _, m := range code.FindAllStringIndex(text, -1) {
		b.WriteString(special.Replace(text[at:m[0]]) + "`" + text[m[0]:m[1]] + "`")
		at = m[1]
	}
	b.WriteString(special.Replace(text[at:]))
	return b.String()
}
