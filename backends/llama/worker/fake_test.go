package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"qr-gateway/backends/llama/engine"
	"qr-gateway/backends/supply"
	"qr-gateway/entropy/hub"
	"qr-gateway/sampler"
	"qr-gateway/sampler/lookahead/lookaheadtest"
)

const (
	fakeVocab = 512
	fakeEOG   = 7
	fakeThink = 9 // a control token
	fakeSeed  = 11
)

// fakeCache is a cache over a synthetic model: the row after a sequence depends on every token of it. It keeps to the rules of
// the real one: rows die with the next decode, recurrent memory drops whole sequences only.
type fakeCache struct {
	model       *lookaheadtest.Model
	recurs      bool
	window      int // tokens kept of a sequence that is alone; 0 keeps all
	batch       []fakeCell
	seqs        map[int][]int32
	rows        [][]float32
	rowOf       []int // row of each batch entry, or -1
	decodes     int
	onDecode    func(n int) error // called before the decode number n
	stop        atomic.Bool
	closed      bool
	leakToForks bool                            // a defect for the self-test: siblings see each other
	spoil       func(decode int, row []float32) // a defect of the model
}

type fakeCell struct {
	token    int32
	pos, seq int
	output   bool
}

func newFakeCache(recurs bool) *fakeCache {
	return &fakeCache{
		model:  lookaheadtest.NewModel(lookaheadtest.Shape{Vocab: fakeVocab}),
		recurs: recurs, seqs: map[int][]int32{},
	}
}

func (c *fakeCache) Reset()   { c.batch = c.batch[:0] }
func (c *fakeCache) Len() int { return len(c.batch) }
func (c *fakeCache) Add(token int32, pos, seq int, output bool) error {
	c.batch = append(c.batch, fakeCell{token, pos, seq, output})
	return nil
}

func (c *fakeCache) Decode() error {
	c.decodes++
	if c.onDecode != nil {
		if err := c.onDecode(c.decodes); err != nil {
			return err
		}
	}
	if c.stop.Load() {
		return engine.ErrInterrupted
	}
	for _, row := range c.rows {
		for i := range row {
			row[i] = float32(math.NaN())
		}
	}
	c.rowOf = c.rowOf[:0]
	outputs := 0
	for i, cell := range c.batch {
		if cell.pos != len(c.seqs[cell.seq]) {
			return fmt.Errorf("%w: position %d of sequence %d that has %d", engine.ErrBadBatch, cell.pos, cell.seq, len(c.seqs[cell.seq]))
		}
		if c.leakToForks && i > 0 {
			c.seqs[cell.seq] = append(c.seqs[cell.seq], c.batch[0].token)
		}
		c.seqs[cell.seq] = append(c.seqs[cell.seq], cell.token)
		c.rowOf = append(c.rowOf, -1)
		if cell.output {
			c.fill(outputs, cell.seq)
			c.rowOf[i] = outputs
			outputs++
		}
	}
	return nil
}

// fill computes row n, which follows seq.
func (c *fakeCache) fill(n, seq int) {
	if n == len(c.rows) {
		c.rows = append(c.rows, make([]float32, fakeVocab))
	}
	state := lookaheadtest.Start(fakeSeed)
	for _, t := range c.seqs[seq] {
		state = lookaheadtest.Next(state, t)
	}
	c.model.Row(state, c.rows[n])
	if c.spoil != nil {
		c.spoil(c.decodes, c.rows[n])
	}
}

func (c *fakeCache) Logits(i int) ([]float32, error) {
	if i >= len(c.rowOf) || c.rowOf[i] < 0 {
		return nil, errors.New("no row")
	}
	return c.rows[c.rowOf[i]], nil
}

func (c *fakeCache) SeqCopy(src, dst, p0, p1 int) error {
	if p0 < 0 {
		c.seqs[dst] = append(c.seqs[dst][:0], c.seqs[src]...)
		return nil
	}
	if p0 != len(c.seqs[dst]) || p1 != len(c.seqs[src]) {
		return fmt.Errorf("copy [%d,%d) to a sequence of %d", p0, p1, len(c.seqs[dst]))
	}
	c.seqs[dst] = append(c.seqs[dst], c.seqs[src][p0:p1]...)
	return nil
}

func (c *fakeCache) SeqRemove(seq, p0, p1 int) (bool, error) {
	switch {
	case p0 <= 0 && p1 < 0:
		c.seqs[seq] = c.seqs[seq][:0]
	case c.recurs || p1 >= 0:
		return false, nil
	default:
		c.seqs[seq] = c.seqs[seq][:p0]
	}
	return true, nil
}

func (c *fakeCache) PosMin(seq int) int {
	n := len(c.seqs[seq])
	if n == 0 {
		return -1
	}
	if c.window > 0 {
		return max(0, n-c.window)
	}
	return 0
}
func (c *fakeCache) PosMax(seq int) int { return len(c.seqs[seq]) - 1 }
func (c *fakeCache) Clear() {
	for seq := range c.seqs {
		c.seqs[seq] = c.seqs[seq][:0]
	}
}
func (c *fakeCache) Interrupt() { c.stop.Store(true) }

// SetThreads implements Cache.
func (c *fakeCache) SetThreads(int) {}

func (c *fakeCache) Resume() { c.stop.Store(false) }
func (c *fakeCache) Close()  { c.closed = true }

// tokens is how many tokens the sequences hold.
func (c *fakeCache) tokens() int {
	n := 0
	for _, held := range c.seqs {
		n += len(held)
	}
	return n
}

// fakeVocabulary has words; every eighth token is half a rune, so that texts have something to hold back.
func fakeVocabulary() *engine.Vocab {
	pieces, flags := make([]string, fakeVocab), make([]engine.TokenFlags, fakeVocab)
	for i := range pieces {
		switch {
		case i == fakeEOG:
			pieces[i], flags[i] = "<eog>", engine.TokenEOG|engine.TokenControl|engine.TokenHidden
		case i == fakeThink:
			pieces[i], flags[i] = "<mark>", engine.TokenControl|engine.TokenHidden
		case i%8 == 0:
			pieces[i] = "\xe2\x82"
		case i%8 == 1:
			pieces[i] = "\xac "
		default:
			pieces[i] = fmt.Sprintf("w%d ", i)
		}
	}
	return engine.NewVocab(pieces, flags)
}

// randomBytes is a source of bytes for tests.
type randomBytes struct {
	mu  sync.Mutex // guards rng
	rng *rand.ChaCha8
	err error
}

func (r *randomBytes) Fill(_ context.Context, buf []byte) (sampler.Block, error) {
	if r.err != nil {
		return sampler.Block{}, r.err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.rng.Read(buf)
	return sampler.Block{Source: "test"}, err
}

// Open implements Supplier: whatever the name, it is this source.
func (r *randomBytes) Open(context.Context, string, hub.Blocks) (supply.Opened, error) {
	return supply.Opened{Source: r, Name: "test", Policy: "strict"}, nil
}

// fakeConfig is for a worker on a fakeCache.
func fakeConfig(memory engine.Memory) Config {
	return Config{Context: 400, Group: 4, Chunk: 64, MinPiece: 32, Memory: memory, Window: 32, ForkOK: true}
}

func fakeDeps(t testing.TB, c Cache) Deps {
	return Deps{
		Cache: c, Vocabulary: fakeVocab, Language: NewLanguage(fakeVocabulary()),
		Entropy: &randomBytes{rng: rand.NewChaCha8([32]byte{1})},
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// newFakeWorker makes a worker that runs until the test ends.
func newFakeWorker(t testing.TB, c Cache, cfg Config) *Worker {
	t.Helper()
	w, err := New(cfg, fakeDeps(t, c))
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, w.Run)
	return w
}

// runUntilEnd runs f until the test ends and waits for it.
func runUntilEnd(t testing.TB, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}
