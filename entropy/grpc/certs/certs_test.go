package certs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"qr-gateway/entropy/grpc/certs"
	"qr-gateway/entropy/grpc/certs/certstest"
)

func TestFilesAreChecked(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	ca := certstest.NewCA(t, dir, "ca", now.Add(-time.Hour), now.Add(time.Hour))
	good := ca.Issue(t, "good", now.Add(-time.Hour), now.Add(time.Hour))
	other := ca.Issue(t, "other", now.Add(-time.Hour), now.Add(time.Hour))
	old := ca.Issue(t, "old", now.Add(-2*time.Hour), now.Add(-time.Hour))
	early := ca.Issue(t, "early", now.Add(time.Hour), now.Add(2*time.Hour))
	oldCA := certstest.NewCA(t, dir, "oldca", now.Add(-2*time.Hour), now.Add(-time.Hour))
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files certs.Files
		want  string // in the error; empty: none
	}{
		"all":                  {certs.Files{CA: ca.File, Cert: good.Cert, Key: good.Key}, ""},
		"authority only":       {certs.Files{CA: ca.File}, ""},
		"none":                 {certs.Files{}, ""},
		"missing authority":    {certs.Files{CA: filepath.Join(dir, "no")}, "no such file"},
		"missing certificate":  {certs.Files{Cert: filepath.Join(dir, "no"), Key: good.Key}, "no such file"},
		"missing key":          {certs.Files{Cert: good.Cert, Key: filepath.Join(dir, "no")}, "no such file"},
		"no key":               {certs.Files{Cert: good.Cert}, "belong together"},
		"another's key":        {certs.Files{Cert: good.Cert, Key: other.Key}, "does not fit certificate"},
		"expired":              {certs.Files{Cert: old.Cert, Key: old.Key}, "expired on"},
		"not yet valid":        {certs.Files{Cert: early.Cert, Key: early.Key}, "not valid before"},
		"expired authority":    {certs.Files{CA: oldCA.File}, "expired on"},
		"authority is no PEM":  {certs.Files{CA: text}, "is not PEM"},
		"certificate no PEM":   {certs.Files{Cert: text, Key: good.Key}, "is not PEM"},
		"key no PEM":           {certs.Files{Cert: good.Cert, Key: text}, "is not PEM"},
		"key as a certificate": {certs.Files{Cert: good.Key, Key: good.Key}, "has no CERTIFICATE"},
		"folder":               {certs.Files{CA: dir}, "is a directory"},
	} {
		_, err := certs.Client(c.files, "", now)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
		if c.files.Cert == "" {
			continue
		}
		if _, err = certs.Server(c.files, now); (err == nil) != (c.want == "") {
			t.Errorf("%s of a server: error %v, want %q", name, err, c.want)
		}
	}
}
