package server_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"qr-gateway/entropy"
	"qr-gateway/entropy/grpc"
	"qr-gateway/entropy/server"
)

// Photons is the driver of a device. Draw is the one method that a device has to have; Close is called after the last request.
type Photons struct{}

// Draw implements entropy.Source. A real device flushes what it kept from before, then measures; where it can't be used by many at once,
// it keeps them apart itself.
func (Photons) Draw(ctx context.Context, buf []byte) (entropy.Block, error) {
	if err := ctx.Err(); err != nil {
		return entropy.Block{}, err
	}
	if _, err := rand.Read(buf); err != nil { // read the device here
		return entropy.Block{}, &entropy.Error{Kind: entropy.KindTransport, Source: "photons", Message: "read the detector", Err: err}
	}
	return entropy.Block{Bytes: buf, Source: "photons", Device: "photons-7", Class: entropy.ClassJIT, ServerTime: time.Now()}, nil
}

// Close ends the use of the device.
func (Photons) Close() error { return nil }

// A device is served by implementing one method. Here a client in the same program draws from it; others use the address.
func Example() {
	dir, err := os.MkdirTemp("", "qr")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	cfg := server.DefaultConfig()
	cfg.Listen = []string{"unix://" + filepath.Join(dir, "entropy.sock")}
	s, err := server.New(cfg, server.Deps{Source: Photons{}})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()

	client := grpc.DefaultConfig()
	client.Address = s.Addrs()[0]
	src, err := grpc.Open(ctx, "photons", client, grpc.Deps{})
	if err != nil {
		panic(err)
	}
	block, err := src.Draw(ctx, make([]byte, 20480))
	fmt.Println(len(block.Bytes), block.Device, block.Echoed, err)

	number, err := src.Number(ctx, entropy.NumberRequest{})
	fmt.Println(number.U > 0 && number.U < 1, number.Integrator, err)

	fmt.Println(src.Close())
	stop()
	fmt.Println(<-ended)
	// Output:
	// 20480 photons-7 true <nil>
	// true zscore_mean <nil>
	// <nil>
	// <nil>
}
