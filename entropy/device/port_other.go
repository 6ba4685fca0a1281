//go:build !linux

package device

import "errors"

var errSystem = errors.New("devices can be read on Linux alone; let a program read it, by type exec")

func checkPath(Config) error { return errSystem }

func openPort(Config, int) (port, error) { return nil, errSystem }
