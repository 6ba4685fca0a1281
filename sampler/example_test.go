package sampler_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"qr-gateway/sampler"
)

// systemBytes is a source of the operating system's random bytes.
type systemBytes struct{}

// Fill implements sampler.ByteSource.
func (systemBytes) Fill(_ context.Context, buf []byte) (sampler.Block, error) {
	_, err := rand.Read(buf)
	return sampler.Block{Source: "system", Class: "pool"}, err
}

// Every token is drawn by bytes that are asked for once its logits exist.
func Example() {
	logits := []float32{2, 1, 0, -1, -2} // one per token of the vocabulary, from a model
	p := sampler.Defaults()
	if err := p.Set("qr_temperature", 0.8); err != nil {
		log.Fatal(err)
	}
	noise, err := sampler.NewNoise(&p, systemBytes{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	s := sampler.NewStream(len(logits))
	if err := s.Begin(&p, nil); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		draw, err := s.Next(context.Background(), logits, nil, noise)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(draw.Token >= 0 && draw.Token < 5, draw.Candidates)
	}
	source, amplifier, bytes := noise.Info()
	fmt.Println(source, amplifier, bytes)
	// Output:
	// true 5
	// true 5
	// true 5
	// system zscore_mean 61440
}

// With a seed the same logits give the same tokens, whatever else runs.
func ExampleNewSeeded() {
	logits := []float32{2, 1, 0, -1, -2}
	p := sampler.Defaults()
	s := sampler.NewStream(len(logits))
	for range 2 {
		if err := s.Begin(&p, nil); err != nil {
			log.Fatal(err)
		}
		noise, tokens := sampler.NewSeeded(42), []int32{}
		for range 8 {
			draw, err := s.Next(context.Background(), logits, nil, noise)
			if err != nil {
				log.Fatal(err)
			}
			tokens = append(tokens, draw.Token)
		}
		fmt.Println(tokens)
	}
	// Output:
	// [0 0 1 0 2 0 1 0]
	// [0 0 1 0 2 0 1 0]
}

// One row and one number need nothing else.
func ExampleSampler_Choose() {
	logits := []float32{2, 1, 0, -1, -2}
	s := sampler.New(len(logits))
	for _, u := range []float64{0.25, 0.75, 0.99} {
		draw, err := s.Choose(logits, nil, sampler.Cut{Temperature: 1, TopP: 0.9}, u)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("u %.2f: token %d of %d, probability %.3f\n", u, draw.Token, draw.Candidates, draw.Prob)
	}
	// Output:
	// u 0.25: token 0 of 3, probability 0.665
	// u 0.75: token 1 of 3, probability 0.245
	// u 0.99: token 2 of 3, probability 0.090
}

// A strategy sets the temperature of each token from its row: here, the more even the row the warmer.
func ExampleStream_Plan() {
	p := sampler.Defaults()
	p.Strategy = "edt"
	s := sampler.NewStream(5)
	if err := s.Begin(&p, nil); err != nil {
		log.Fatal(err)
	}
	for _, logits := range [][]float32{{9, 0, 0, 0, 0}, {2, 1, 0, -1, -2}, {1, 1, 1, 1, 1}} {
		plan, err := s.Plan(logits, nil)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("H %.3f: temperature %.3f\n", plan.H, plan.Temperature)
		draw, err := s.Choose(0.5) // any number of your own
		if err != nil {
			log.Fatal(err)
		}
		s.Accept(draw.Token, nil)
	}
	// Output:
	// H 0.005: temperature 0.100
	// H 1.000: temperature 0.631
	// H 1.609: temperature 0.800
}

// constant is a source for this example: all its bytes are the same.
type constant byte

// Fill implements sampler.ByteSource.
func (c constant) Fill(_ context.Context, buf []byte) (sampler.Block, error) {
	asked := time.Now()
	for i := range buf {
		buf[i] = byte(c)
	}
	return sampler.Block{Source: "constant", Class: "replay", Requested: asked, Arrived: time.Now()}, nil
}

// The record of a token says how it was chosen and what its number was made of.
func ExampleStream_Record() {
	logits := []float32{2, 1, 0, -1, -2}
	p := sampler.Defaults()
	p.SampleCount = 1000
	noise, err := sampler.NewNoise(&p, constant(128), nil)
	if err != nil {
		log.Fatal(err)
	}
	s := sampler.NewStream(len(logits))
	s.Observe(true) // entropy too, which the fixed temperature doesn't need
	if err := s.Begin(&p, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := s.Next(context.Background(), logits, nil, noise); err != nil {
		log.Fatal(err)
	}
	r := s.Record()
	fmt.Printf("token %d of rank %d by u %.4f (z %.4f) at T %v, H %.4f\n", r.Token, r.Rank, r.U, r.Z, r.Temperature, r.H)
	fmt.Printf("made by %s of %d bytes from %s (%s), fallback %v\n", r.Amplifier, r.Bytes, r.Source, r.Class, r.Fallback)
	data, err := json.Marshal(&r) // one flat object
	fmt.Println(len(data) > 0, r.FetchMS >= 0, err)
	// Output:
	// token 0 of rank 0 by u 0.5847 (z 0.2140) at T 1, H 1.0000
	// made by zscore_mean of 1000 bytes from constant (replay), fallback false
	// true true <nil>
}

// Penalties, a bias and a ban adjust the row first. The caller's row stays as it is.
func ExampleMask() {
	logits := []float32{2, 1, 0, -1, -2}
	p := sampler.Defaults()
	p.Temperature, p.FrequencyPenalty = 0, 1.5 // greedy
	s := sampler.NewStream(len(logits))
	if err := s.Begin(&p, nil); err != nil {
		log.Fatal(err)
	}
	for range 4 {
		draw, err := s.Next(context.Background(), logits, sampler.NewMask(1), nil)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(draw.Token, " ")
	}
	// Output:
	// 0 0 2 0
}
