//go:build unix && !linux

package exec

import (
	osexec "os/exec"
	"syscall"
)

// collect waits for the end of a process and kills what is left of its group. The group's number is free if nobody is left; for the
// moment that this takes nobody else gets it, since numbers go round.
func collect(cmd *osexec.Cmd) error {
	err := cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // there may be nobody left
	return err
}
