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
	cfg.Blocks, cfg.BlockBytes = 60, 1024
	r, err := measure.Run(t.Context(), local.NewSystem(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var one bytes.Buffer
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
	ink := 0 // of the points and lines: none of them is in an empty frame
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			if r, g, b, _ := img.At(x, y).RGBA(); r>>8 == 31 && g>>8 == 78 && b>>8 == 121 {
				ink++
			}
		}
	}
	if ink < 2000 {
		t.Errorf("%d pixels of the picture are data", ink)
	}
}

func TestPNGWithoutBlocks(t *testing.T) {
	if err := chart.PNG(new(bytes.Buffer), &measure.Report{Source: "empty"}); err == nil {
		t.Error("a report without blocks was drawn")
	}
}
