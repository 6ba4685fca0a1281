package param

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
		if d := Distance(word, name); d <= best && (nearest == "" || d < best) {
			best, nearest = d, name
		}
	}
	return nearest
}

// Distance is the number of inserted, removed or changed bytes between a and b, where swapping neighbours counts as one change.
func Distance(a, b string) int {
	var before, above []int
	here := make([]int, len(b)+1)
	for j := range here {
		here[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, here = above, here, make([]int, len(b)+1)
		here[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			here[j] = min(above[j]+1, here[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				here[j] = min(here[j], before[j-2]+1)
			}
		}
	}
	return here[len(b)]
}
