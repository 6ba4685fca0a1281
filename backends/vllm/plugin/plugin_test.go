package plugin_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"qr-gateway/backends/vllm/plugin"
	"qr-gateway/backends/vllm/wire"
)

// interpreter is the Python that has numpy and pytest.
func interpreter(t *testing.T) string {
	t.Helper()
	python := os.Getenv("QR_TEST_PYTHON")
	if python == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("QR_TEST_PYTHON is not set; set it with: eval \"$(make -s test-env)\"")
		}
		t.Skip("needs QR_TEST_PYTHON; see make test")
	}
	return python
}

// run runs Python in this folder.
func run(t *testing.T, python string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, args...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", args[0], err, out)
	}
}

// TestPython runs the plugin against stand-ins of both of vLLM's model runners and a scripted sidecar; see testdata.
func TestPython(t *testing.T) {
	run(t, interpreter(t), "-m", "pytest", "-q", "-p", "no:cacheprovider", "testdata")
}

// TestLoaders loads the plugin with vLLM's own loaders, of both model runners. It needs an environment that has vLLM.
func TestLoaders(t *testing.T) {
	venv := os.Getenv("QR_E2E_V1")
	if venv == "" {
		t.Skip("needs QR_E2E_V1, an environment with vLLM; see make e2e-vllm")
	}
	run(t, filepath.Join(venv, "bin", "python"), filepath.Join("testdata", "loaders.py"))
}

// TestSource: the file is short, speaks the wire's language, and is what a command writes.
func TestSource(t *testing.T) {
	text := string(plugin.Source())
	if n := strings.Count(text, "\n"); n >= 400 {
		t.Errorf("%s has %d lines; it may have 399", plugin.Name, n)
	}
	if !strings.Contains(text, wire.Schema) {
		t.Errorf("%s doesn't have the text of wire.Schema, letter for letter: copy it from there", plugin.Name)
	}
	if module, class, _ := strings.Cut(plugin.Class, ":"); module+".py" != plugin.Name || !strings.Contains(text, "\nclass "+class+"(") {
		t.Errorf("%s has no %s", plugin.Name, plugin.Class)
	}
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	for range 2 {
		path, err := plugin.Write(dir)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != string(plugin.Source()) || path != filepath.Join(dir, plugin.Name) {
			t.Errorf("%s has %d bytes, %v", path, len(got), err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("the folder has %v, %v", left, err)
	}
	if info, err := left[0].Info(); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestWriteNowhere: what is wrong with the folder is said, and nothing is left.
func TestWriteNowhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := plugin.Write(file); err == nil || !strings.Contains(err.Error(), "folder of the vLLM plugin") {
		t.Errorf("a file in place of a folder: %v", err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, plugin.Name, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := plugin.Write(dir); err == nil {
		t.Error("a folder in place of the file: no error")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}
