package worker

import (
	"context"
	"fmt"
	"math"
	"slices"
)

const (
	testPrompt = 16 // tokens; the start waits until they are decoded four times
	// A fork may differ from plain decoding by this many times what two plain ways of decoding the same tokens differ by,
	// or by this part of what different tokens differ by, whichever is more. A wrong state differs like a different token.
	noiseFactor   = 4
	siblingFactor = 0.1
)

// Report is what a self-test found.
type Report struct {
	ForkOK bool
	Lines  []string // one per check, with the numbers
}

// SelfTest checks on an empty cache that a fork gives the logits that plain decoding gives, and that equal forks give
// equal rows. ordinary are tokens of the model to test with. The cache is empty again afterwards.
func SelfTest(ctx context.Context, c Cache, group int, ordinary []int32) (Report, error) {
	t := &selfTest{lane: &lane{Cache: c, progress: &Progress{}}, group: max(group, 2)}
	t.prompt, t.token = sample(ordinary, testPrompt), sample(ordinary, testPrompt+t.group)[testPrompt:]
	defer c.Clear()
	var rows [3][][]float32
	for i, measure := range []func(context.Context) ([][]float32, error){t.plain, t.paired, t.forks} {
		c.Clear()
		var err error
		if rows[i], err = measure(ctx); err != nil {
			return Report{}, fmt.Errorf("run self-test: %w", err)
		}
	}
	equal, siblings := rows[2][:t.group], rows[2][t.group:]
	return judge(rows[0][0], rows[1][0], equal, siblings), nil
}

// sample picks n tokens spread over the vocabulary.
func sample(tokens []int32, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = tokens[(i*7919+13)%len(tokens)]
	}
	return out
}

// selfTest decodes the same prompt in several ways.
type selfTest struct {
	lane   *lane
	group  int
	prompt []int32
	token  []int32 // group different candidates
}

// plain decodes the prompt and then the candidate alone.
func (t *selfTest) plain(ctx context.Context) ([][]float32, error) {
	if err := t.feed(ctx, t.prompt, 0); err != nil {
		return nil, err
	}
	t.lane.Reset()
	if err := t.lane.Add(t.token[0], testPrompt, 0, true); err != nil {
		return nil, err
	}
	return t.decode(ctx, 1)
}

// paired decodes the prompt's last token and the candidate in one batch: the model's own noise, without any fork.
func (t *selfTest) paired(ctx context.Context) ([][]float32, error) {
	last := testPrompt - 1
	if err := t.feed(ctx, t.prompt[:last], 0); err != nil {
		return nil, err
	}
	t.lane.Reset()
	if err := t.lane.Add(t.prompt[last], last, 0, true); err != nil {
		return nil, err
	}
	if err := t.lane.Add(t.token[0], testPrompt, 0, true); err != nil {
		return nil, err
	}
	rows, err := t.decode(ctx, 2)
	if err != nil {
		return nil, err
	}
	return rows[1:], nil
}

// forks decodes the same candidate in every fork, and then a different one in each.
func (t *selfTest) forks(ctx context.Context) (rows [][]float32, err error) {
	if err := t.feed(ctx, t.prompt, 0); err != nil {
		return nil, err
	}
	for _, spread := range []int{0, 1} {
		if err := t.fork(t.group, func(i int) int32 { return t.token[spread*i] }); err != nil {
			return nil, err
		}
		some, err := t.decode(ctx, t.group)
		if err != nil {
			return nil, err
		}
		if err := t.unfork(t.group); err != nil {
			return nil, err
		}
		rows = append(rows, some...)
	}
	return rows, nil
}

// fork fills the batch with n candidates, each on a copy of the prompt.
func (t *selfTest) fork(n int, token func(i int) int32) error {
	t.lane.Reset()
	for i := range n {
		if err := t.lane.SeqCopy(0, i+1, -1, -1); err != nil {
			return err
		}
		if err := t.lane.Add(token(i), testPrompt, i+1, true); err != nil {
			return err
		}
	}
	return nil
}

// unfork drops n forks.
func (t *selfTest) unfork(n int) error {
	for i := range n {
		if _, err := t.lane.SeqRemove(i+1, -1, -1); err != nil {
			return err
		}
	}
	return nil
}

func (t *selfTest) feed(ctx context.Context, tokens []int32, seq int) error {
	t.lane.Reset()
	for i, token := range tokens {
		if err := t.lane.Add(token, i, seq, i == len(tokens)-1); err != nil {
			return err
		}
	}
	return t.lane.decode(ctx)
}

// decode decodes the batch, n tokens with a row each, and returns copies of the rows.
func (t *selfTest) decode(ctx context.Context, n int) ([][]float32, error) {
	if err := t.lane.decode(ctx); err != nil {
		return nil, err
	}
	rows := make([][]float32, n)
	for i := range rows {
		row, err := t.lane.Logits(i)
		if err != nil {
			return nil, err
		}
		rows[i] = slices.Clone(row)
	}
	return rows, nil
}

// judge compares the rows.
func judge(plain, paired []float32, equal, siblings [][]float32) Report {
	noise, fork := distance(plain, paired), distance(plain, siblings[0])
	forkMax := apart(plain, siblings[0])
	nearest, spread, spreadMax := math.Inf(1), 0.0, 0.0
	for i := range siblings[1:] {
		nearest = min(nearest, distance(siblings[0], siblings[i+1]))
	}
	for _, row := range equal[1:] {
		spread, spreadMax = max(spread, distance(equal[0], row)), max(spreadMax, apart(equal[0], row))
	}
	limit := max(noiseFactor*noise, siblingFactor*nearest)
	var r Report
	same := distance(plain, equal[0]) <= limit && spread <= limit
	r.ForkOK = fork <= limit && same
	r.Lines = []string{
		fmt.Sprintf("%s: a fork differs from plain decoding by %.3g (greatest %.3g); noise without forks %.3g, nearest sibling %.3g",
			verdict(fork <= limit), fork, forkMax, noise, nearest),
		fmt.Sprintf("%s: %d equal forks differ by at most %.3g (greatest %.3g)", verdict(same), len(equal), spread, spreadMax),
	}
	return r
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "FAILED"
}

// distance is the root mean square of the differences; logits that are not finite on both sides don't count.
func distance(a, b []float32) float64 {
	sum, n := 0.0, 0
	for i := range a {
		if d := float64(a[i]) - float64(b[i]); !math.IsNaN(d) && !math.IsInf(d, 0) {
			sum, n = sum+d*d, n+1
		}
	}
	return math.Sqrt(sum / float64(max(n, 1)))
}

// apart is the greatest difference.
func apart(a, b []float32) float64 {
	most := 0.0
	for i := range a {
		if d := math.Abs(float64(a[i]) - float64(b[i])); !math.IsInf(d, 0) && d > most {
			most = d
		}
	}
	return most
}
