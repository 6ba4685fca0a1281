package local

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"qr-gateway/entropy"
	"qr-gateway/entropy/entropytest"
)

func openMock(t *testing.T, cfg MockConfig) *Mock {
	t.Helper()
	m, err := OpenMock(t.Context(), "mock", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func fill(t *testing.T, s entropy.Source, n int) []byte {
	t.Helper()
	b, err := s.Draw(t.Context(), make([]byte, n))
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes
}

func TestMock(t *testing.T) {
	entropytest.Run(t, func(t *testing.T) entropy.Source { return openMock(t, MockConfig{Seed: 7}) })
}

// TestMockIsChaCha8 fixes the stream: a control run must be one that can be made again.
func TestMockIsChaCha8(t *testing.T) {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], 7)
	want := make([]byte, 5000)
	_, _ = rand.NewChaCha8(key).Read(want)
	whole := openMock(t, MockConfig{Seed: 7})
	if got := bytes.Join([][]byte{fill(t, whole, 3), fill(t, whole, 4000), fill(t, whole, 997)}, nil); !bytes.Equal(got, want) {
		t.Error("the stream depends on how it is drawn, or is another")
	}
	if got := fill(t, openMock(t, MockConfig{Seed: 7, Offset: 1234}), 100); !bytes.Equal(got, want[1234:1334]) {
		t.Error("offset is not a place in the stream")
	}
	if got := fill(t, openMock(t, MockConfig{SeedHex: "07" + strings.Repeat("00", 31)}), 100); !bytes.Equal(got, want[:100]) {
		t.Error("seed_hex is not the key")
	}
	if got := fill(t, openMock(t, MockConfig{Seed: 8}), 100); bytes.Equal(got, want[:100]) {
		t.Error("two seeds give the same bytes")
	}
}

// TestMockIsUniform: the mean of a million bytes, where a mock with mean 127.03 would be 6 standard errors off.
func TestMockIsUniform(t *testing.T) {
	const n = 1 << 20
	mean, variance := moments(fill(t, openMock(t, MockConfig{Seed: 1}), n))
	if z := (mean - 127.5) / (73.90027063549903 / math.Sqrt(n)); math.Abs(z) > 4 {
		t.Errorf("mean %v, z %.1f", mean, z)
	}
	if want := (65536.0 - 1) / 12; math.Abs(variance/want-1) > 0.005 {
		t.Errorf("variance %v, want %v", variance, want)
	}
}

func moments(block []byte) (mean, variance float64) {
	for _, x := range block {
		mean += float64(x)
	}
	mean /= float64(len(block))
	for _, x := range block {
		variance += (float64(x) - mean) * (float64(x) - mean)
	}
	return mean, variance / float64(len(block))
}

func openBiased(t *testing.T, cfg BiasedConfig) *Biased {
	t.Helper()
	s, err := OpenBiased(t.Context(), "biased", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBiased(t *testing.T) {
	entropytest.Run(t, func(t *testing.T) entropy.Source { return openBiased(t, BiasedConfig{Fault: FaultShift, Shift: 0.5}) })
}

func TestBiasedShift(t *testing.T) {
	const n = 1 << 20
	for _, shift := range []float64{0.5, 1, -3, 30, 0, 127.5, -127.5} {
		block := fill(t, openBiased(t, BiasedConfig{Fault: FaultShift, Shift: shift}), n)
		mean, _ := moments(block)
		if math.Abs(mean-127.5-shift) > 4*73.9/math.Sqrt(n) {
			t.Errorf("shift %v: the mean is %v", shift, mean)
		}
		for bit := range 8 { // the bias is in every bit alike
			ones := 0
			for _, x := range block {
				ones += int(x >> bit & 1)
			}
			if got, want := float64(ones)/n, 0.5+shift/255; math.Abs(got-want) > 4*0.5/math.Sqrt(n) {
				t.Errorf("shift %v: bit %d is set in %v, want %v", shift, bit, got, want)
			}
		}
	}
}

func TestBiasedFaults(t *testing.T) {
	if got := fill(t, openBiased(t, BiasedConfig{Fault: FaultStuck, Value: 9}), 3); !bytes.Equal(got, []byte{9, 9, 9}) {
		t.Errorf("stuck: %v", got)
	}
	if got := fill(t, openBiased(t, BiasedConfig{Fault: FaultCounter, Value: 254}), 3); !bytes.Equal(got, []byte{254, 255, 0}) {
		t.Errorf("counter: %v", got)
	}
	twice := openBiased(t, BiasedConfig{Fault: FaultDuplicate})
	if a, b, c := fill(t, twice, 40), fill(t, twice, 40), fill(t, twice, 40); !bytes.Equal(a, b) || bytes.Equal(b, c) {
		t.Error("duplicate: every second block is the one before")
	}
}

func TestRefusedMocks(t *testing.T) {
	for name, cfg := range map[string]MockConfig{
		"offset":    {Offset: 1 << 40},
		"short key": {SeedHex: "0102"},
		"no hex":    {SeedHex: strings.Repeat("zz", 32)},
		"both":      {Seed: 1, SeedHex: strings.Repeat("00", 32)},
	} {
		if _, err := OpenMock(t.Context(), "m", cfg); entropy.KindOf(err) != entropy.KindConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, cfg := range map[string]BiasedConfig{
		"fault":  {Fault: "broken"},
		"shift":  {Fault: FaultShift, Shift: 200},
		"NaN":    {Fault: FaultShift, Shift: math.NaN()},
		"offset": {Fault: FaultStuck, MockConfig: MockConfig{Offset: 1 << 40}},
	} {
		if _, err := OpenBiased(t.Context(), "m", cfg); entropy.KindOf(err) != entropy.KindConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
}
