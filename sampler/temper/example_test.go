package temper_test

import (
	"fmt"
	"math"

	"qr-gateway/sampler/temper"
)

// One token of an answer: entropy of the row, temperature, and what was chosen in the end.
func Example() {
	kind, err := temper.Find("edt")
	if err != nil {
		fmt.Println(err)
		return
	}
	row := []float32{2, 1, 0, -1, -2}
	strategy, err := kind.New(defaults(nil), len(row)) // or sampler.Params, which are values too
	if err != nil {
		fmt.Println(err)
		return
	}
	h, vh := temper.Moments(row)
	in := temper.Input{Row32: row, H: h, VH: vh, HNorm: h / math.Log(float64(len(row)))}
	var out temper.Output
	if err := strategy.Plan(&in, &out); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("H %.4f nats, temperature %.4f\n", h, out.Temperature)
	strategy.Chosen(0)
	// Output: H 1.0000 nats, temperature 0.6306
}
