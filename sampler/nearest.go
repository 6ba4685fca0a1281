package sampler

// unknown is the error for a key that is not in the table, with the one it was probably meant to be.
func unknown(key string) *ParamError {
	e := &ParamError{Key: key}
	if len(key) > 64 {
		e.Key = key[:61] + "..."
		return e
	}
	best := len(key)/3 + 1 // more changes than this is another word
	for i := range table {
		for _, name := range []string{table[i].Key, table[i].Standard} {
			if name == "" {
				continue
			}
			if d := distance(key, name); d <= best && (e.Nearest == "" || d < best) {
				best, e.Nearest = d, name
			}
		}
	}
	return e
}

// distance is the number of inserted, removed or changed bytes between a and b, where swapping neighbours counts as one change.
func distance(a, b string) int {
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
