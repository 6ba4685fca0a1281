package chart_test

import (
	"bytes"
	"image/png"
	"testing"

	"qr-gateway/entropy/chart"
	"qr-gateway/entropy/local"
	"qr-gateway/entropy/measure"
)

func TestPNG(t *testing.T) {
	cfg := measure.DefaultConfig()
	cfg.Blocks, cfg.BlockBytes = 120, 4096
	r, err := measure.Run(t.Context(), local.NewSystem(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var one, other bytes.Buffer
	if err := chart.PNG(&one, r); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(one.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if b := img.Bounds(); b.Dx() < 1000 || b.Dy() < 600 {
		t.Errorf("the picture is %v", b)
	}
	r.Series.Z[3] += 5 // what is seen must be in the picture
	if err := chart.PNG(&other, r); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(one.Bytes(), other.Bytes()) {
		t.Error("another z makes the same picture")
	}
}

func TestPNGWithoutBlocks(t *testing.T) {
	if err := chart.PNG(new(bytes.Buffer), &measure.Report{Source: "empty"}); err == nil {
		t.Error("a report without blocks was drawn")
	}
}
