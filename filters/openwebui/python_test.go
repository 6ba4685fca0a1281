package openwebui

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"qr-gateway/sampler"
	"qr-gateway/sampler/param"
)

// TestPython runs the filter under plain Python, with stubs of what Open WebUI is to it; see testdata.
func TestPython(t *testing.T) {
	python := os.Getenv("QR_TEST_PYTHON")
	if python == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("QR_TEST_PYTHON is not set; set it with: eval \"$(make -s test-env)\"")
		}
		t.Skip("needs QR_TEST_PYTHON; see make test")
	}
	cmd := exec.CommandContext(t.Context(), python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "testdata")
	cmd.Env = append(os.Environ(), "QR_PARAMETERS="+parameters(t), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("pytest: %v\n%s", err, out)
	}
}

// parameters writes the table as GET /v1/qr/parameters serves it.
func parameters(t *testing.T) string {
	t.Helper()
	var table []param.Description
	for _, f := range slices.Concat(sampler.Fields(), sampler.ProcessFields()) {
		table = append(table, f.Describe())
	}
	text, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "parameters.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
