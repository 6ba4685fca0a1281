package secret_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"qr-gateway/entropy/grpc/secret"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := strings.Repeat("s", secret.Min)
	for _, c := range []struct{ name, text, file, want, fails string }{
		{"none", "", "", "", ""},
		{"text", good, "", good, ""},
		{"file", "", write("good", good+"\n"), good, ""},
		{"short", "", write("short", "tooshort"), "", "8 bytes"},
		{"space", "", write("space", good+" "+good), "", "space"},
		{"missing", "", filepath.Join(dir, "missing"), "", "secret_file"},
	} {
		got, err := secret.Read(c.text, c.file)
		if got != c.want || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
		if err != nil && strings.Contains(err.Error(), good) {
			t.Errorf("%s: the error tells the secret", c.name)
		}
	}
	if secret.CheckGiven(good, "file") == nil || secret.CheckGiven("short", "") == nil || secret.CheckGiven("", "file") != nil {
		t.Error("what is given is checked wrongly")
	}
}

func TestDigest(t *testing.T) {
	d := secret.DigestOf("0123456789abcdef")
	if !d.Is("0123456789abcdef") || d.Is("0123456789abcdeF") || d.Is("") || secret.DigestOf("") != nil {
		t.Error("the digest is of something else")
	}
}
