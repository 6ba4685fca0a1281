package catalog

import "github.com/agnivade/levenshtein"

// nearest is the name at most a third of whose letters differ from word, or empty.
func nearest(word string, names []string) string {
	best, least := "", max(2, len(word)/3)+1
	for _, n := range names {
		if d := levenshtein.ComputeDistance(word, n); d < least {
			best, least = n, d
		}
	}
	return best
}
