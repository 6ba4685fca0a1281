package catalog

import (
	"os"
	"strings"
	"testing"

	"qr-gateway/entropy/guard"
)

// TestDocs: the page names every type, and every option of the guard and of the types that need nothing but this machine.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/entropy.md")
	if err != nil {
		t.Fatal(err)
	}
	names := Keys(&guard.Config{})
	for _, k := range Kinds() {
		names = append(append(names, k.Type), k.Aliases...)
		switch k.Type {
		case "system", "timing", "mock", "mock_biased", "replay", "fallback":
			names = append(names, Keys(k.Options())...)
		}
	}
	for _, name := range names {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/entropy.md does not name `%s`", name)
		}
	}
}
