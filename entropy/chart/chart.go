// Package chart draws what an examination of an entropy source found: one picture for a paper or a wall. It holds no state.
//
// The panels are descriptive. A line that leaves its band is not a test: those are in the report, each made once.
package chart

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"qr-gateway/entropy/measure"
)

// Size of the picture.
const (
	width  = 13 * vg.Inch
	height = 8 * vg.Inch
)

var (
	ink  = color.RGBA{R: 31, G: 78, B: 121, A: 255}
	band = color.RGBA{R: 190, G: 80, B: 40, A: 255}
)

// PNG writes the picture of r: counts of bytes, the histogram of u, the normal quantiles of z, the cumulative deviation of z with its 95 %
// envelope, z itself, and latency. A report without blocks is an error.
func PNG(w io.Writer, r *measure.Report) error {
	if len(r.Series.Z) == 0 || len(r.Series.ByteCounts) != 256 {
		return fmt.Errorf("draw chart of %s: the report has no blocks", r.Source)
	}
	panels := make([][]*plot.Plot, 2)
	for i, make := range []func(*measure.Report) (*plot.Plot, error){bytePanel, uPanel, quantilePanel, deviationPanel, zPanel, latencyPanel} {
		p, err := make(r)
		if err != nil {
			return fmt.Errorf("draw chart of %s: %w", r.Source, err)
		}
		panels[i/3] = append(panels[i/3], p)
	}
	img := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(96))
	canvas := draw.New(img)
	title := canvas.Rectangle.Max
	text := draw.TextStyle{Color: color.Black, Font: plot.DefaultFont, Handler: plot.DefaultTextHandler, XAlign: draw.XCenter, YAlign: draw.YTop}
	text.Font.Size = vg.Points(15)
	canvas.FillText(text, vg.Point{X: title.X / 2, Y: title.Y - vg.Points(4)}, heading(r))
	tiles := draw.Tiles{Rows: 2, Cols: 3, PadTop: vg.Points(28), PadX: vg.Points(14), PadY: vg.Points(14), PadLeft: 6, PadRight: 10, PadBottom: 6}
	for i, row := range plot.Align(panels, tiles, canvas) {
		for j, c := range row {
			panels[i][j].Draw(c)
		}
	}
	if _, err := (vgimg.PngCanvas{Canvas: img}).WriteTo(w); err != nil {
		return fmt.Errorf("write chart: %w", err)
	}
	return nil
}

func heading(r *measure.Report) string {
	text := fmt.Sprintf("%s: %d blocks of %d bytes, %s", r.Source, r.Blocks, r.BlockBytes, r.When.UTC().Format("2006-01-02 15:04 UTC"))
	if r.Device != "" && r.Device != r.Source {
		text = r.Device + " as " + text
	}
	return text
}

// panel is an empty plot.
func panel(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Add(plotter.NewGrid())
	return p
}

// bytePanel shows how often each byte came, in standard deviations of a uniform source.
func bytePanel(r *measure.Report) (*plot.Plot, error) {
	p := panel("bytes: deviation of each count", "byte", "standard deviations")
	n := float64(r.Blocks) * float64(r.BlockBytes)
	sd := math.Sqrt(n / 256 * 255 / 256)
	pts := make(plotter.XYs, 256)
	for i, c := range r.Series.ByteCounts {
		pts[i] = plotter.XY{X: float64(i), Y: (float64(c) - n/256) / sd}
	}
	return p, scatter(p, pts)
}

// uPanel shows the histogram of u and what is expected of it.
func uPanel(r *measure.Report) (*plot.Plot, error) {
	k := float64(len(r.Series.UCounts))
	p := panel(fmt.Sprintf("u: %d numbers, expected as a line", r.Blocks), "u", "numbers per bin")
	var bars, expected plotter.XYs
	for i, c := range r.Series.UCounts {
		low, high := float64(i)/k, float64(i+1)/k
		bars = append(bars, plotter.XY{X: low}, plotter.XY{X: low, Y: float64(c)}, plotter.XY{X: high, Y: float64(c)}, plotter.XY{X: high})
		e := r.Series.UExpected[i]
		expected = append(expected, plotter.XY{X: low, Y: e}, plotter.XY{X: high, Y: e})
	}
	p.Y.Min = 0
	if err := line(p, bars, ink, 0.8); err != nil {
		return nil, err
	}
	return p, line(p, expected, band, 1.2)
}

// quantilePanel compares the sorted z with the quantiles of the normal distribution.
func quantilePanel(r *measure.Report) (*plot.Plot, error) {
	p := panel("z against normal quantiles", "normal quantile", "z")
	z := slices.Clone(r.Series.Z)
	slices.Sort(z)
	pts := make(plotter.XYs, len(z))
	for i := range z {
		pts[i] = plotter.XY{X: math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/float64(len(z))-1), Y: z[i]}
	}
	ends := plotter.XYs{{X: pts[0].X, Y: pts[0].X}, {X: pts[len(pts)-1].X, Y: pts[len(pts)-1].X}}
	if err := line(p, ends, band, 1.2); err != nil {
		return nil, err
	}
	return p, scatter(p, pts)
}

// deviationPanel sums z from block to block. A fair source stays within 1.96 sqrt(t) at a given t 95 times in 100.
func deviationPanel(r *measure.Report) (*plot.Plot, error) {
	p := panel("cumulative deviation of z", "block", "sum of z")
	sum := 0.0
	var walk, over, under plotter.XYs
	for i, z := range r.Series.Z {
		t := float64(i + 1)
		sum += z
		walk = append(walk, plotter.XY{X: t, Y: sum})
		over = append(over, plotter.XY{X: t, Y: 1.96 * math.Sqrt(t)})
		under = append(under, plotter.XY{X: t, Y: -1.96 * math.Sqrt(t)})
	}
	for _, edge := range []plotter.XYs{over, under} {
		if err := line(p, edge, band, 1); err != nil {
			return nil, err
		}
	}
	return p, line(p, walk, ink, 1)
}

// zPanel shows z of each block.
func zPanel(r *measure.Report) (*plot.Plot, error) {
	p := panel("z of each block", "block", "z")
	return p, scatter(p, series(r.Series.Z, 1))
}

// latencyPanel shows how long each block took.
func latencyPanel(r *measure.Report) (*plot.Plot, error) {
	p := panel("latency of each block", "block", "milliseconds")
	p.Y.Min = 0
	return p, scatter(p, series(r.Series.Latency, 1000))
}

func series(values []float64, scale float64) plotter.XYs {
	pts := make(plotter.XYs, len(values))
	for i, v := range values {
		pts[i] = plotter.XY{X: float64(i + 1), Y: v * scale}
	}
	return pts
}

func scatter(p *plot.Plot, pts plotter.XYs) error {
	s, err := plotter.NewScatter(pts)
	if err != nil {
		return err
	}
	s.GlyphStyle = draw.GlyphStyle{Color: ink, Radius: vg.Points(1.4), Shape: draw.CircleGlyph{}}
	p.Add(s)
	return nil
}

func line(p *plot.Plot, pts plotter.XYs, c color.Color, points float64) error {
	l, err := plotter.NewLine(pts)
	if err != nil {
		return err
	}
	l.LineStyle = draw.LineStyle{Color: c, Width: vg.Points(points)}
	p.Add(l)
	return nil
}
