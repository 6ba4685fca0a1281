package catalog_test

import (
	"context"
	"fmt"

	"qr-gateway/entropy/catalog"
)

// A configuration names its sources; each is drawn from by its name.
func ExampleOpen() {
	set, err := catalog.Open(context.Background(), []catalog.Spec{
		{Name: "control", Type: "mock", Options: map[string]any{"seed": 7}},
		{Name: "broken", Type: "mock_biased", Policy: "fallback", Fallback: "control", Options: map[string]any{"fault": "stuck"}},
	}, catalog.Deps{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer set.Close()
	src, err := set.Get("broken")
	if err != nil {
		fmt.Println(err)
		return
	}
	block, err := src.Draw(context.Background(), make([]byte, 1024))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(set.Names())
	fmt.Println(block.Source, block.Class, block.Fallback)
	// Output:
	// [broken control system]
	// control replay true
}
