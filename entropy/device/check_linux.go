package device

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"qr-gateway/entropy"
)

// checkPath refuses what is no device that can be read, before it is opened: opening alone may block, or set something off.
func checkPath(cfg Config) error {
	var st unix.Stat_t
	switch err := unix.Stat(cfg.Path, &st); {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%s does not exist; is the device plugged in and its driver loaded?", cfg.Path)
	case err != nil:
		return fmt.Errorf("look at %s: %w", cfg.Path, err)
	}
	if err := checkStat(cfg, &st); err != nil {
		return err
	}
	if err := unix.Access(cfg.Path, unix.R_OK); err != nil {
		return fmt.Errorf("%s can't be read by this user: %w; add the user to the device's group, or a udev rule", cfg.Path, err)
	}
	return nil
}

// The numbers of drivers, from the kernel's devices.txt. Those from 234 to 254 and from 384 are given out as drivers are loaded.
const (
	majorMem, majorTTY, majorConsole, majorMisc        = 1, 4, 5, 10
	majorPTS, majorPTSLast, majorACM, majorUSB         = 136, 143, 166, 180
	majorUSBSerial, majorAMA                           = 188, 204
	minorZero, minorFull, minorRandom, minorURandom    = 5, 7, 8, 9
	minorSerial, minorHWRNG                            = 64, 183
	majorDynamic, majorDynamicLast, majorDynamicExtend = 234, 254, 384
)

func checkStat(cfg Config, st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
	case unix.S_IFDIR:
		return fmt.Errorf("%s is a directory; give the device in it", cfg.Path)
	case unix.S_IFIFO:
		return fmt.Errorf("%s is a FIFO: what is in it is older than the request; read the program that fills it by type exec", cfg.Path)
	case unix.S_IFREG:
		return fmt.Errorf("%s is a regular file; use type replay for recorded bytes", cfg.Path)
	case unix.S_IFBLK:
		return fmt.Errorf("%s is a block device, such as a disk; give a character device", cfg.Path)
	case unix.S_IFSOCK:
		return fmt.Errorf("%s is a socket; use type grpc", cfg.Path)
	default:
		return fmt.Errorf("%s is no character device", cfg.Path)
	}
	return checkNumber(cfg, unix.Major(st.Rdev), unix.Minor(st.Rdev))
}

func checkNumber(cfg Config, major, minor uint32) error {
	if major == majorMem {
		return checkMemory(cfg, minor)
	}
	isPTS := major >= majorPTS && major <= majorPTSLast
	serial := major == majorTTY && minor >= minorSerial || isPTS || major == majorACM || major == majorUSBSerial || major == majorAMA
	dynamic := major >= majorDynamic && major <= majorDynamicLast || major >= majorDynamicExtend
	switch {
	case major == majorTTY && minor < minorSerial, major == majorConsole:
		return fmt.Errorf("%s is a terminal or console of this machine; give a serial port or another device", cfg.Path)
	case cfg.Kind == KindSerial && !serial && !dynamic && !cfg.AllowAny:
		return fmt.Errorf("%s (%d:%d) is no serial port; leave kind out, or set it to char", cfg.Path, major, minor)
	case serial, dynamic, major == majorUSB, major == majorMisc && minor == minorHWRNG, cfg.AllowAny:
		return nil
	}
	return fmt.Errorf("%s (%d:%d) is of no kind that is known to make random bytes; set allow_any if it does", cfg.Path, major, minor)
}

// checkMemory: of the kernel's own devices only the generator may be read, as what it is.
func checkMemory(cfg Config, minor uint32) error {
	switch minor {
	case minorURandom:
		if cfg.AllowUrandom || cfg.Class == entropy.ClassPool {
			return nil
		}
		return fmt.Errorf("%s is the kernel's generator; use type system, or set allow_urandom: its class is pool", cfg.Path)
	case minorRandom:
		return fmt.Errorf("%s is the kernel's generator, and may block for ever; use type system", cfg.Path)
	case minorZero, minorFull:
		return fmt.Errorf("%s holds nothing but zeros; give a device that makes random bytes", cfg.Path)
	}
	return fmt.Errorf("%s (1:%d) is one of the kernel's memory devices; give a device that makes random bytes", cfg.Path, minor)
}
