package main

import (
	"context"
	"errors"
	"fmt"
)

// part is a component that runs until its context ends.
type part struct {
	name string
	run  func(context.Context) error
}

// runStack runs parts together. When ctx ends, or one of them does, they are stopped from the last to the first, each one only
// when those behind it have ended: what depends on a part is gone before the part is.
func runStack(ctx context.Context, parts ...part) error {
	type running struct {
		cancel context.CancelFunc
		done   chan error
	}
	stack := make([]running, len(parts))
	ended := make(chan struct{}, len(parts))
	for i, p := range parts {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		stack[i] = running{cancel, make(chan error, 1)}
		go func() {
			err := p.run(own)
			if err != nil && own.Err() == nil {
				err = fmt.Errorf("%s: %w", p.name, err)
			} else if errors.Is(err, context.Canceled) {
				err = nil
			}
			stack[i].done <- err
			ended <- struct{}{}
		}()
	}
	select {
	case <-ctx.Done():
	case <-ended:
	}
	var errs []error
	for i := len(stack) - 1; i >= 0; i-- {
		stack[i].cancel()
		errs = append(errs, <-stack[i].done)
	}
	return errors.Join(errs...)
}
