// Package device draws random bytes from a character device or serial port. What makes such bytes fresh is that nothing that waited in a
// buffer is used: each draw first does what the configuration says about that (stop, flush, start, discard), and a step that fails is a
// failed draw. Recipes hold these steps for known devices; none of them was tried on the real hardware.
//
// One goroutine per [Source] owns the device; draws hand it their request one at a time, so a Source may be used by any number of
// goroutines. A read that the driver does not let go of marks the device dead until it returns: see design.md.
package device
