package amplify

import (
	"fmt"
	"slices"
	"sort"

	"qr-gateway/sampler/param"
)

func ecdfFields() []param.Field {
	return []param.Field{{
		Key: "qr_ecdf_calibration_samples", Env: "QR_ECDF_CALIBRATION_SAMPLES", Type: param.TypeInteger, Min: 100, Max: 1e6, Default: 2000,
		Unit: "blocks", Help: "ecdf: calibration blocks that are read from a source, once.",
	}}
}

// ECDF makes u of where the mean of a block lies among the N means of the calibration: (below + not above + 1)/(2(N+1)), the middle of
// the place, so that equal means share one and u is symmetric. Averaged over calibrations it takes N+1 values, equally often, between
// 1/(2(N+1)) and 1-1/(2(N+1)). With one calibration at hand u is as far from uniform as that sample of means is from the law of the
// source: about 1/sqrt(N).
type ECDF struct {
	cfg Config
	cal *Calibration
}

// NewECDF returns the amplifier for the source that cfg.Calibration measured.
func NewECDF(cfg Config) (*ECDF, error) {
	cal := cfg.Calibration
	if cal == nil || len(cal.means) == 0 {
		return nil, fmt.Errorf("check amplifier %s: %w", NameECDF, ErrNoCalibration)
	}
	if n := cfg.BlockBytes; n != 0 && n != cal.BlockBytes {
		return nil, fmt.Errorf("check amplifier %s: calibration was made with blocks of %d bytes, the blocks have %d; calibrate with as many", NameECDF, cal.BlockBytes, n)
	}
	if err := cfg.validateEpsilon(); err != nil {
		return nil, fmt.Errorf("check amplifier %s: %w", NameECDF, err)
	}
	return &ECDF{cfg: cfg, cal: cal}, nil
}

func makeECDF(cfg Config) (Amplifier, error) { return NewECDF(cfg) }

// Read implements [Amplifier]. Rank is how many calibration means are not above the block's.
func (a *ECDF) Read(block []byte) (Reading, error) {
	if len(block) == 0 {
		return Reading{}, ErrEmpty
	}
	means := a.cal.means
	r := Reading{Mean: float64(Sum(block)) / float64(len(block)), Bytes: len(block), Of: len(means)}
	below, _ := slices.BinarySearch(means, r.Mean)
	r.Rank = below + sort.Search(len(means)-below, func(i int) bool { return means[below+i] > r.Mean })
	r.U = a.cfg.keep(float64(below+r.Rank+1) / float64(2*(r.Of+1)))
	return r, nil
}
