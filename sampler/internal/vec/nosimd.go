//go:build !goexperiment.simd || !amd64

package vec

func hasSIMD() bool { return false }

func expSum([]float32, *skimArgs, *[8]float64, []oddRun) int { panic("vec: no SIMD in this build") }
func expMoments([]float32, *skimArgs, *[3][8]float64, []oddRun) int {
	panic("vec: no SIMD in this build")
}
func runsWithin([]float32, uint32, uint32, []oddRun) int { panic("vec: no SIMD in this build") }
func runAbove(_ []float32, i int, _ float32) int         { return i }
