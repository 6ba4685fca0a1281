package sampler

import (
	"fmt"
	"slices"

	"qr-gateway/sampler/amplify"
)

// Validate checks every field against the table, and fields against each other. The error is a *[ParamError].
func (p *Params) Validate() error {
	if err := table.check(p); err != nil {
		return err
	}
	for _, check := range []func(*Params) error{checkPeekBytes, checkPeekAmplifier, checkEDT, checkCalibration} {
		if err := check(p); err != nil {
			return err
		}
	}
	return nil
}

// checkPeekBytes holds that every candidate gets bytes of its own.
func checkPeekBytes(p *Params) error {
	if p.Seed != nil || !p.UsesLookahead() || p.numberPerToken() || p.SampleCount > p.LookaheadK {
		return nil
	}
	return conflict("qr_sample_count", "qr_sample_count is %d, but %d candidates (qr_lookahead_k) and the end of the text need a byte each; raise it to %d or more",
		p.SampleCount, p.LookaheadK, p.LookaheadK+1)
}

// numberPerToken says that look-ahead decides a token with one number, not with one per candidate.
func (p *Params) numberPerToken() bool {
	return p.Lookahead == ModeBounded || p.Lookahead == ModeFullInverse
}

// checkPeekAmplifier refuses an amplifier that can't make a number per candidate where one is needed.
func checkPeekAmplifier(p *Params) error {
	if p.Seed != nil || !p.UsesLookahead() || p.numberPerToken() || !slices.Contains(perTokenOnly, p.Amplifier) {
		return nil
	}
	return conflict("qr_amplifier", "qr_amplifier is %s, which makes one number per token, but qr_lookahead %s needs one per candidate; set qr_lookahead to bounded or full_inverse",
		p.Amplifier, p.Lookahead)
}

// perTokenOnly are the amplifiers that make one number per token only.
var perTokenOnly = func() []string {
	var names []string
	for _, k := range amplify.Kinds() {
		if k.PerToken {
			names = append(names, k.Name)
		}
	}
	return names
}()

func checkEDT(p *Params) error {
	least, most := p.Number("qr_edt_min_temp"), p.Number("qr_edt_max_temp")
	if least <= most {
		return nil
	}
	return conflict("qr_edt_min_temp", "qr_edt_min_temp is %v, which is more than qr_edt_max_temp, %v; make it at most that", least, most)
}

// maxCalibration bounds what one calibration takes from a source, in bytes: everybody else waits for it.
const maxCalibration = 64 << 20

// checkCalibration refuses calibrations that would take minutes of a device.
func checkCalibration(p *Params) error {
	draws, key := p.ZScoreCalibration, "qr_zscore_calibration_samples"
	if p.Amplifier == amplify.NameECDF {
		draws, key = int(p.Number("qr_ecdf_calibration_samples")), "qr_ecdf_calibration_samples"
	}
	if draws*p.SampleCount <= maxCalibration || p.Seed != nil {
		return nil
	}
	return conflict("qr_sample_count", "qr_sample_count is %d, and a calibration takes %d draws of that (%s), more than %d bytes together; make it at most %d, or take fewer draws",
		p.SampleCount, draws, key, maxCalibration, maxCalibration/draws)
}

func conflict(key, format string, args ...any) *ParamError {
	return &ParamError{Key: key, Reason: fmt.Sprintf(format, args...)}
}
