// Package secret reads the shared secret that two processes know each other by, and compares it.
package secret

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"

	"qr-gateway/entropy/regular"
)

// Bounds of a secret, in bytes.
const (
	Min = 16 // shorter ones can be guessed
	Max = 4096
)

// Check says why text can't be a secret, without telling it.
func Check(text string) error {
	bad := strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
	switch {
	case len(text) < Min || len(text) > Max:
		return fmt.Errorf("the secret has %d bytes; it takes %d to %d: make one with openssl rand -hex 32", len(text), Min, Max)
	case bad:
		return errors.New("the secret has a space or a character outside of ASCII in it: make one with openssl rand -hex 32")
	}
	return nil
}

// CheckGiven checks a secret that is given as text, or in a file, or not at all. It reads no file.
func CheckGiven(text, file string) error {
	switch {
	case text != "" && file != "":
		return errors.New("secret and secret_file are both given")
	case text != "":
		return Check(text)
	}
	return nil
}

// Read returns the secret, from the file if one is named. It may be empty.
func Read(text, file string) (string, error) {
	if file == "" {
		return text, nil
	}
	data, err := regular.Read(file, Max+2)
	if err != nil {
		return "", fmt.Errorf("read secret_file: %w", err)
	}
	text = strings.TrimSpace(string(data))
	if err := Check(text); err != nil {
		return "", fmt.Errorf("secret_file %s: %w", file, err)
	}
	return text, nil
}

// Digest is what a server keeps of its secret.
type Digest [sha256.Size]byte

// DigestOf is the digest of a secret; nil for an empty one.
func DigestOf(text string) *Digest {
	if text == "" {
		return nil
	}
	d := Digest(sha256.Sum256([]byte(text)))
	return &d
}

// Is reports whether shown is the secret. It takes the same time whatever is shown.
func (d *Digest) Is(shown string) bool {
	sum := sha256.Sum256([]byte(shown))
	return subtle.ConstantTimeCompare(d[:], sum[:]) == 1
}
