package amplify

import "qr-gateway/sampler/param"

// Kind is one line of the table of amplifiers.
type Kind struct {
	Name     string
	Help     string
	Fields   []param.Field // its own parameters
	PerToken bool          // makes one number per token only
	Server   bool          // the numbers come from a server
}

// Kinds returns the table of amplifiers.
func Kinds() []Kind { return []Kind{{Name: Name, Help: "the z-score of the mean of the bytes"}} }
