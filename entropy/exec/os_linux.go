package exec

import (
	"errors"
	osexec "os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// collect waits for the end of a process, kills what is left of its group, and only then gives its number back.
func collect(cmd *osexec.Cmd) error {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // there may be nobody left
	return cmd.Wait()
}
