package param

import "github.com/agnivade/levenshtein"

// Unknown is the error for a key that is in no table, with the one of known that it was probably meant to be.
func Unknown(key string, known []string) *Error {
	e := &Error{Key: key}
	if len(key) > 64 {
		e.Key = key[:61] + "..."
		return e
	}
	e.Nearest = Nearest(key, known)
	return e
}

// Nearest is the first of the known words that looks most like word, or empty where none does.
func Nearest(word string, known []string) string {
	nearest, best := "", len(word)/3+1 // more changes than this is another word
	for _, name := range known {
		if d := levenshtein.ComputeDistance(word, name); d <= best && (nearest == "" || d < best) {
			best, nearest = d, name
		}
	}
	return nearest
}
