package openwebui

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write generated files anew")

// TestGenerated holds the files that people import to the table and the source.
func TestGenerated(t *testing.T) {
	files, err := Export()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]byte{ID + ".py": files.Python, ID + ".json": files.JSON} {
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is not what the table says; go test ./filters/openwebui -update (-want +got):\n%s", path, diff)
		}
	}
}
