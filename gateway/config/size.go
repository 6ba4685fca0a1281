package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ByteSize is a number of bytes, written with its unit.
type ByteSize int64

type byteUnit struct {
	name string
	size float64
}

// byteUnits are the units that a size may have, the ones that end like another first.
func byteUnits() []byteUnit {
	return []byteUnit{
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1},
	}
}

func parseByteSize(text string) (ByteSize, error) {
	for _, u := range byteUnits() {
		digits, found := strings.CutSuffix(strings.TrimSpace(text), u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || n < 0 || n*u.size > math.MaxInt64/2 || math.IsNaN(n) {
			break
		}
		return ByteSize(n * u.size), nil
	}
	return 0, fmt.Errorf("is %q; it takes a size with its unit, e.g. 10MiB", text)
}

// String writes the size with the largest unit that divides it.
func (s ByteSize) String() string {
	for _, u := range []byteUnit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if unit := ByteSize(u.size); s != 0 && s%unit == 0 {
			return fmt.Sprintf("%d%s", s/unit, u.name)
		}
	}
	return fmt.Sprintf("%dB", int64(s))
}
