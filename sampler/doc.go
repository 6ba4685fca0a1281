// Package sampler chooses tokens. It holds the one table of parameters that everything else is derived from (validation, flags,
// environment names, documentation), the plain decoder that turns one row of logits and one uniform number into a token, and the noise
// that supplies those numbers. Decoding that looks at what follows a candidate is in the lookahead package.
//
// It does no I/O, reads no clock and logs nothing: bytes come from a [ByteSource] that the caller owns. A [Sampler] and a [Noise] belong
// to one goroutine at a time; [Params], [Mask] and the table are plain values that may be shared as long as nobody changes them.
//
//	p := sampler.Defaults()
//	if err := p.Set("qr_temperature", 0.8); err != nil { ... }
//	noise := sampler.NewSeeded(42)
//	s := sampler.New(nVocab)
//	u, err := noise.One(ctx, step)
//	draw, err := s.Choose(row, nil, p.Cut(), u)
package sampler
