package exec

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// host is the Python package that hosts a class. It is laid out where a Python can import it, so that nothing is to be installed.
//
//go:embed python/src/qr_exec_source/*.py
var host embed.FS

const hostRoot = "python/src"

// hostCommand is what runs the host.
func (c Config) hostCommand() []string {
	command := []string{c.Python, "-m", "qr_exec_source"}
	if c.PythonEntryPoint != "" {
		return append(command, "--entry-point", c.PythonEntryPoint)
	}
	return append(command, c.PythonClass)
}

// hostEnv is what the host finds in its environment: a configuration may hold secrets, and everybody may see a process's arguments.
func (c Config) hostEnv() []string {
	if c.PythonConfig == "" {
		return nil
	}
	return []string{"QR_EXEC_SOURCE_CONFIG=" + c.PythonConfig}
}

// withHost lays the host out in a directory of its own and puts that first in PYTHONPATH. remove takes it away.
func withHost(env []string) (with []string, remove func(), err error) {
	root, err := os.MkdirTemp("", "qr-exec-source-")
	remove = func() { _ = os.RemoveAll(root) } // temporary
	if err != nil {
		return nil, func() {}, fmt.Errorf("make directory for the Python host: %w", err)
	}
	files, err := fs.Sub(host, hostRoot)
	if err == nil {
		err = os.CopyFS(root, files)
	}
	if err != nil {
		remove()
		return nil, func() {}, fmt.Errorf("lay out the Python host: %w", err)
	}
	path := root
	for _, e := range env {
		if old, ok := strings.CutPrefix(e, "PYTHONPATH="); ok {
			path = root
			if old != "" {
				path += string(filepath.ListSeparator) + old
			}
		}
	}
	return append(env, "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1"), remove, nil
}
