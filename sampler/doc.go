// Package sampler chooses tokens: logits in, a token out, with a record of everything that decided. It is a library in its own right, for any
// program that has logits, and needs neither a server nor an engine.
//
// # From logits to a token
//
// A [Stream] decides the tokens of one answer. For each it takes a row of logits, one per token of the vocabulary, and goes
//
//	penalties, bias, bans        adjust logits or take them out                [Params], [Mask]
//	temperature strategy         T, sometimes min-p, from the row's entropy    package temper
//	bytes                        asked for only now, just in time              [ByteSource]
//	amplifier                    a block of bytes becomes u in (0,1)           package amplify
//	top-k, min-p, top-p          what is left to choose from                   [Cut]
//	inverse CDF                  u chooses, by descending probability          [Sampler], [Exact]
//
// and its [Record] tells the whole. [Stream.Next] is all of it in one call. The parts can be used alone: [Sampler.Choose] is one row and one number,
// a [Noise] makes numbers, and package lookahead, which looks at what follows each candidate, takes a [Plan] and a Noise.
//
//	p := sampler.Defaults()
//	err := p.Set("qr_temperature_strategy", "edt")
//	noise, err := sampler.NewNoise(&p, source, nil)
//	s := sampler.NewStream(nVocab)
//	err = s.Begin(&p, prompt)
//	for {
//		row := model.Logits()
//		draw, err := s.Next(ctx, row, nil, noise)
//		record := s.Record()
//		model.Accept(draw.Token)
//	}
//
// # Without the whole row
//
// Where rows are far away, as on a GPU, a [Head] may stand for one: the largest logits, and sums over all. [Stream.NextHead] gives the token that
// the whole row would give, or says that the row is needed; the number that was drawn then waits for it:
//
//	draw, err := s.NextHead(ctx, head, nil, noise)
//	if errors.Is(err, sampler.ErrWholeRow) {
//		draw, err = s.Next(ctx, row, nil, noise)
//	}
//
// [Stream.Void] takes back a step whose row an engine has dropped.
//
// # What is exact
//
// Probabilities are decided on in float64 and the running sum is divided by its own total, so that every token that is left can be chosen, down
// to the last of the vocabulary, as often as softmax says. Equal logits stand by ascending id. The token is a monotone function of u: near 0 the
// most probable, near 1 the least. [Exact] does the same over float64 rows, one step after another, and is what [Sampler] is checked against.
//
// # Parameters
//
// Package sampler holds the one table that validation, flags, environment names and documentation are derived from: see [Fields]. Strategies and
// amplifiers declare theirs beside their code.
//
// # What it does not do
//
// It does no I/O, reads no clock and logs nothing: bytes come from a [ByteSource] that the caller owns, and times are those that it gives. The one
// exception is the salt of requests that are sent ahead, which is read from the operating system.
//
// A [Stream], [Sampler], [Exact] and [Noise] belong to one goroutine at a time. [Params], [Mask] and the table are plain values that may be shared as
// long as nobody changes them.
package sampler
