package sampler_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestLibraryPage: the code of docs/library.md is that of the examples beside this file, which are compiled and run.
func TestLibraryPage(t *testing.T) {
	page, err := os.ReadFile("../docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) < 6 {
		t.Errorf("%d pieces of code, the page has more", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(string(code), string(b[1])) {
			t.Errorf("not in example_test.go:\n%s", b[1])
		}
	}
}
