package amplify_test

import (
	"fmt"

	"qr-gateway/sampler/amplify"
)

// The number of a block by the standard score of its mean.
func Example() {
	amp, err := amplify.New(amplify.DefaultConfig())
	if err != nil {
		fmt.Println(err)
		return
	}
	block := make([]byte, 256)
	for i := range block {
		block[i] = 128
	}
	r, err := amp.Read(block)
	fmt.Printf("mean %.1f, z %.4f, u %.4f, error %v\n", r.Mean, r.Z, r.U, err)
	// Output: mean 128.0, z 0.1083, u 0.5431, error <nil>
}

// A source is measured once, and its numbers are made by what was measured.
func ExampleCalibrate() {
	cal, err := amplify.Calibrate(256, []float64{126.1, 129.2, 127.9, 125.4})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("mean %.2f +- %.2f, std %.1f, %s\n", cal.Mean, cal.MeanSE, cal.Std, cal.Hash()[:8])
	kind, err := amplify.Find("ecdf")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = kind.New(cal.Config())
	fmt.Println(err)
	// Output:
	// mean 127.15 +- 0.86, std 27.6, ab2d512f
	// <nil>
}
