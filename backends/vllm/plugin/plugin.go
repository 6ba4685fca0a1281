// Package plugin has the logits processor by which the sampler of this module chooses the tokens of vLLM: one Python file that needs nothing but
// what vLLM itself has. It goes into a folder that vLLM's Python finds modules in, and is loaded with
//
//	vllm serve MODEL --logits-processors qr_vllm:Processor
//
// It serves both of vLLM's model runners, and speaks to the sidecar over a Unix socket; see package wire for how.
package plugin

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
)

const (
	// Name is the file's name. Python knows the module without its ending.
	Name = "qr_vllm.py"
	// Class is what vLLM's --logits-processors takes.
	Class = "qr_vllm:Processor"
)

//go:embed qr_vllm.py
var source string

// Source returns the text of the file.
func Source() []byte { return []byte(source) }

// Write puts the file into dir, in place of an older one, and returns its path. The folder is made if it isn't there. An engine that starts
// meanwhile finds one version or the other, whole.
func Write(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the folder of the vLLM plugin: %w", err)
	}
	f, err := os.CreateTemp(dir, "."+Name+"-*")
	if err != nil {
		return "", fmt.Errorf("write the vLLM plugin: %w; name a folder that may be written to", err)
	}
	path := filepath.Join(dir, Name)
	if err := fill(f, path); err != nil {
		_ = os.Remove(f.Name())
		return "", fmt.Errorf("write the vLLM plugin: %w", err)
	}
	return path, nil
}

// fill writes f and gives it its name.
func fill(f *os.File, path string) error {
	_, err := f.WriteString(source)
	if mode := f.Chmod(0o644); err == nil {
		err = mode
	}
	if end := f.Close(); err == nil {
		err = end
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
