package device

import (
	"cmp"

	"qr-gateway/entropy"
)

// Kinds of devices.
const (
	KindChar   = "char"
	KindSerial = "serial"
)

// How the DTR line of a serial port is used.
const (
	DTRLeave = ""     // as the port has it when it is open: on
	DTRGate  = "gate" // on only while bytes are read: the device sends nothing else
)

// Protocols.
const (
	ProtocolStream  = ""        // the device sends bytes and nothing else
	ProtocolQCicada = "qcicada" // one-shot commands of QCicada and Firefly
)

// Recipe is what is known of a device from its maker's or its users' documents. It was not tried on real hardware.
type Recipe struct {
	Name string
	Help string
	Path string // where its driver puts it
	Config
}

// Recipes is the table, one device each.
func Recipes() []Recipe {
	return []Recipe{
		{Name: "truerng", Help: "TrueRNG v3: sends while DTR is on; the first two USB packets are thrown away", Path: "/dev/ttyACM0", Config: Config{
			Kind: KindSerial, Baud: 115200, DTR: DTRGate, Flush: true, Discard: 128, Class: entropy.ClassJIT, Rate: 50_000,
		}},
		{Name: "truerngpro", Help: "TrueRNGpro in its normal mode, set by opening it at 110, 300 and 110 baud", Path: "/dev/ttyACM0", Config: Config{
			Kind: KindSerial, Baud: 300, Knock: []int{110, 300, 110}, DTR: DTRGate, Flush: true, Discard: 128, Class: entropy.ClassJIT, Rate: 375_000,
		}},
		{Name: "onerng", Help: "OneRNG: avalanche noise, whitened", Path: "/dev/ttyACM0", Config: Config{
			Kind: KindSerial, Baud: 115200, Flush: true, Discard: 128, Class: entropy.ClassJIT, Rate: 43_000,
			Stop: []string{"cmdo\n", "cmdw\n"}, Start: []string{"cmd0\n", "cmdO\n"},
		}},
		{Name: "comscire", Help: "ComScire PQ and MED over FTDI: stopped, purged and started for each draw", Path: "/dev/ttyUSB0", Config: Config{
			Kind: KindSerial, Baud: 3_000_000, Flush: true, Discard: 62, Class: entropy.ClassJIT, Rate: 500_000,
			Stop: []string{"hex:e0"}, Start: []string{"hex:96"},
		}},
		{Name: "qcicada", Help: "Crypta Labs QCicada and Firefly: raw noise measured on command", Path: "/dev/ttyUSB0", Config: Config{
			Kind: KindSerial, Baud: 1_000_000, Flush: true, Protocol: ProtocolQCicada, MaxDraw: qcicadaShot, Class: entropy.ClassJIT,
		}},
		{Name: "hwrng", Help: "the kernel's hardware generator; what is behind it is checked before and after each draw", Path: "/dev/hwrng", Config: Config{
			Kind: KindChar, Discard: 63, CheckRNG: true, Class: entropy.ClassBuffer, Rate: 10_000,
		}},
		{Name: "chaoskey", Help: "ChaosKey: packets of 64 bytes", Path: "/dev/chaoskey0", Config: Config{
			Kind: KindChar, Discard: 63, Class: entropy.ClassJIT, Rate: 1_250_000,
		}},
		{Name: "infnoise", Help: "Infinite Noise with its kernel module", Path: "/dev/infnoise0", Config: Config{
			Kind: KindChar, Discard: 512, Class: entropy.ClassBuffer, Rate: 32_000,
		}},
		{Name: "quantis", Help: "IDQ Quantis PCIe or USB with its driver; set ready_file if the driver has a count", Path: "/dev/qrandom0", Config: Config{
			Kind: KindChar, Discard: 4096, Class: entropy.ClassBuffer, Rate: 500_000,
		}},
	}
}

func findRecipe(name string) (Recipe, bool) {
	for _, r := range Recipes() {
		if r.Name == name {
			return r, true
		}
	}
	return Recipe{}, false
}

func recipeNames() []string {
	var out []string
	for _, r := range Recipes() {
		out = append(out, r.Name)
	}
	return out
}

// resolve puts the recipe's values where the configuration has none.
func (c Config) resolve() Config {
	r, _ := findRecipe(c.Recipe)
	c.Path = cmp.Or(c.Path, r.Path)
	c.Kind = cmp.Or(c.Kind, r.Kind, KindChar)
	c.Baud = cmp.Or(c.Baud, r.Baud)
	c.DTR = cmp.Or(c.DTR, r.DTR)
	c.Flush = c.Flush || r.Flush
	c.Discard = cmp.Or(c.Discard, r.Discard)
	c.CheckRNG = c.CheckRNG || r.CheckRNG
	c.Protocol = cmp.Or(c.Protocol, r.Protocol)
	c.MaxDraw = cmp.Or(c.MaxDraw, r.MaxDraw)
	c.Rate = cmp.Or(c.Rate, r.Rate)
	if c.Knock == nil {
		c.Knock = r.Knock
	}
	if c.Stop == nil {
		c.Stop = r.Stop
	}
	if c.Start == nil {
		c.Start = r.Start
	}
	if c.AllowUrandom {
		c.Class = cmp.Or(c.Class, entropy.ClassPool)
	}
	c.Class = cmp.Or(c.Class, r.Class, entropy.ClassBuffer)
	return c
}
