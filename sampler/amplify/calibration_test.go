package amplify_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"qr-gateway/sampler/amplify"
)

// TestCalibrationByHand computes everything from three blocks.
func TestCalibrationByHand(t *testing.T) {
	means := []float64{130, 124, 127}
	cal, err := amplify.Calibrate(100, means)
	if err != nil {
		t.Fatal(err)
	}
	// The sample variance of the means is 9, so that of a byte 900.
	if cal.Mean != 127 || math.Abs(cal.Std-30) > 1e-12 || math.Abs(cal.MeanSE-math.Sqrt(3)) > 1e-12 || cal.Blocks != 3 || cal.BlockBytes != 100 {
		t.Errorf("%+v", cal)
	}
	const hash = "0ba40032055e10c79c347eb36a644335419d7803dec7942294ffbaa3517b4e0c" // computed apart from this program
	if cal.Hash() != hash {
		t.Errorf("hash %s, want %s", cal.Hash(), hash)
	}
	means[0] = 0
	if diff := cmp.Diff([]float64{124, 127, 130}, cal.Means()); diff != "" {
		t.Error(diff)
	}
	cal.Means()[0] = 7
	if diff := cmp.Diff([]float64{124, 127, 130}, cal.Means()); diff != "" {
		t.Error(diff)
	}
}

func TestCalibrateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		bytes int
		means []float64
		want  error
	}{
		"none":      {16, nil, amplify.ErrTooFew},
		"one":       {16, []float64{100}, amplify.ErrTooFew},
		"equal":     {16, []float64{100, 100, 100}, amplify.ErrNoVariance},
		"no length": {0, []float64{100, 101}, nil},
		"negative":  {16, []float64{-1, 101}, nil},
		"too large": {16, []float64{100, 256}, nil},
		"not one":   {16, []float64{100, math.NaN()}, nil},
	} {
		if _, err := amplify.Calibrate(c.bytes, c.means); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
}

// TestCalibrationJSON: what was written is read again, whatever order the blocks came in, and what was changed is refused.
func TestCalibrationJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		means := rapid.SliceOfNDistinct(rapid.Float64Range(0, 255), 2, 30, rapid.ID).Draw(t, "means")
		n := rapid.IntRange(1, 1<<20).Draw(t, "bytes")
		cal, err := amplify.Calibrate(n, means)
		if err != nil {
			t.Fatal(err)
		}
		again, err := amplify.Calibrate(n, rapid.Permutation(means).Draw(t, "order"))
		if err != nil || again.Hash() != cal.Hash() || again.Mean != cal.Mean || again.Std != cal.Std {
			t.Fatalf("in another order: %+v, error %v, want %+v", again, err, cal)
		}
		data, err := json.Marshal(cal)
		if err != nil {
			t.Fatal(err)
		}
		var read amplify.Calibration
		if err := json.Unmarshal(data, &read); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(cal, &read, cmp.AllowUnexported(amplify.Calibration{})); diff != "" {
			t.Fatal(diff)
		}
		spoilt := strings.Replace(string(data), `"means":[`, `"means":[1.5,`, 1)
		if err := json.Unmarshal([]byte(spoilt), &read); err == nil {
			t.Fatal("a changed file: no error")
		}
	})
}

// FuzzCalibrationJSON: no text makes a calibration that doesn't survive being written and read.
func FuzzCalibrationJSON(f *testing.F) {
	cal, err := amplify.Calibrate(16, []float64{100, 101.5, 255})
	if err != nil {
		f.Fatal(err)
	}
	data, err := json.Marshal(cal)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"means":[1]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var c, again amplify.Calibration
		if json.Unmarshal(data, &c) != nil {
			return
		}
		data, err := json.Marshal(&c)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &again); err != nil || again.Hash() != c.Hash() {
			t.Errorf("%s: error %v", data, err)
		}
	})
}
