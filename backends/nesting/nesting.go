// Package nesting bounds how deep JSON nests before anything that recurses reads it. It has no state.
package nesting

// Deeper returns the offset of the first bracket of data that opens a level beyond limit, or -1 if there is none. It looks at brackets
// outside of strings; whether the JSON is right is for its reader.
func Deeper(data []byte, limit int) int {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return i
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return -1
}
