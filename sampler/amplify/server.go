package amplify

import "errors"

// ErrServer says that bytes were given to the amplifier that stands for an entropy server which makes the numbers.
var ErrServer = errors.New("amplifier server makes no number of bytes: ask the source for the number instead (its draw call)")

// server is the marker of that way.
type server struct{}

func makeServer(Config) (Amplifier, error) { return server{}, nil }

// Read implements [Amplifier] and is always [ErrServer].
func (server) Read([]byte) (Reading, error) { return Reading{}, ErrServer }
