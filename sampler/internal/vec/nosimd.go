//go:build !goexperiment.simd || !amd64

package vec

// Stands in for the kernels, which are never called where hasSIMD is false.

func hasSIMD() bool { return false }

const noSIMD = "vec: no vector instructions in this build"

func weigh(_, _ []float32, _ *skimArgs, _ int, _ []oddRun) int { panic(noSIMD) }
func addWeights([]float32, *[8]float64)                        { panic(noSIMD) }
func addMoments(_, _ []float32, _ *skimArgs, _ *[3][8]float64) { panic(noSIMD) }
func runsWithin(_ []float32, _, _ uint32, _ []oddRun) int      { panic(noSIMD) }
func firstBroken([]float32) int                                { panic(noSIMD) }
func runAbove(_ []float32, _ int, _ float32) int               { panic(noSIMD) }
