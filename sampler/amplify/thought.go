package amplify

// ZScoreThought makes the numbers of [ZScoreMean] and adds up what it read since the last Reset, for the report on a whole answer. It
// belongs to one goroutine.
type ZScoreThought struct {
	z   *ZScoreMean
	sum uint64
	n   int
}

// Total is the reading of everything as if it had been one block. Without a byte it is U 0.5, Z 0, SEM 0 and the mean of the source.
type Total struct {
	Reading
	Bias float64 // Mean over that of the source
}

// NewZScoreThought returns an amplifier with nothing added up.
func NewZScoreThought(cfg Config) (*ZScoreThought, error) {
	z, err := newZScore(cfg)
	if err != nil {
		return nil, err
	}
	return &ZScoreThought{z: z}, nil
}

func makeThought(cfg Config) (Amplifier, error) { return NewZScoreThought(cfg) }

// Read implements [Amplifier].
func (a *ZScoreThought) Read(block []byte) (Reading, error) {
	if len(block) == 0 {
		return Reading{}, ErrEmpty
	}
	sum := Sum(block)
	a.sum += sum
	a.n += len(block)
	return a.z.reading(sum, len(block)), nil
}

// Total returns the reading of everything since the last Reset.
func (a *ZScoreThought) Total() Total {
	if a.n == 0 {
		return Total{Reading: Reading{U: 0.5, Mean: a.z.cfg.Mean}}
	}
	r := a.z.reading(a.sum, a.n)
	return Total{Reading: r, Bias: r.Mean - a.z.cfg.Mean}
}

// Reset forgets what was read.
func (a *ZScoreThought) Reset() { a.sum, a.n = 0, 0 }
