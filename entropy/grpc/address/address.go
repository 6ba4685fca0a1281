// Package address reads the addresses of entropy servers, for those who call and for those who listen. It looks nothing up.
package address

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"qr-gateway/entropy/regular"
)

// maxPath is what a Unix socket's path may be long, without the byte that ends it.
const maxPath = 107

// Address is where a server listens: a host and port, or a Unix socket.
type Address struct {
	Text    string // as written
	Network string // tcp or unix
	Host    string // of tcp; an IPv6 address without brackets
	Port    string // of tcp
	Path    string // of unix: absolute, or the abstract name behind @
}

// Parse reads host:port, [IPv6]:port, unix:///absolute/path and unix-abstract:name.
func Parse(text string) (Address, error) {
	a := Address{Text: text}
	var err error
	switch {
	case text == "":
		err = errors.New("is empty: write host:port or unix:///path/to/socket")
	case strings.HasPrefix(text, "unix-abstract:"):
		err = a.abstract(strings.TrimPrefix(text, "unix-abstract:"))
	case strings.HasPrefix(text, "unix:"):
		err = a.unix(strings.TrimPrefix(text, "unix:"))
	case strings.Contains(text, "://"):
		scheme, rest, _ := strings.Cut(text, "://")
		err = fmt.Errorf("scheme %s is not known: write %s or unix:///path/to/socket", scheme, strings.TrimRight(rest, "/"))
	default:
		err = a.tcp(text)
	}
	if err != nil {
		return Address{}, fmt.Errorf("address %q %w", text, err)
	}
	return a, nil
}

func (a *Address) abstract(name string) error {
	if name == "" || len(name) >= maxPath || strings.ContainsRune(name, 0) {
		return fmt.Errorf("has a bad name: it needs 1 to %d bytes", maxPath-1)
	}
	a.Network, a.Path = "unix", "@"+name
	return nil
}

func (a *Address) unix(rest string) error {
	path := rest
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		path = after
	}
	switch {
	case !strings.HasPrefix(path, "/"):
		return fmt.Errorf("has a relative path: write unix://%s", filepath.Join("/absolute/path/to", path))
	case len(path) > maxPath:
		return fmt.Errorf("has a path of %d bytes: a Unix socket takes %d at most", len(path), maxPath)
	case strings.ContainsRune(path, 0) || strings.HasSuffix(path, "/"):
		return errors.New("names no file: write unix:///path/to/socket")
	}
	a.Network, a.Path = "unix", filepath.Clean(path)
	return nil
}

func (a *Address) tcp(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		if _, ip := netip.ParseAddr(text); ip == nil && strings.Contains(text, ":") {
			return fmt.Errorf("is an IPv6 address without a port: write [%s]:50051", text)
		}
		return errors.New("is no host:port: write for example localhost:50051, [::1]:50051 or unix:///run/qr-entropy/entropy.sock")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || port != strconv.FormatUint(n, 10) {
		return fmt.Errorf("has port %q: it must be a number from 0 to 65535", port)
	}
	if strings.ContainsAny(host, " /@?#%\\") && !strings.Contains(text, "]") || strings.ContainsAny(host, " /@?#\\") {
		return fmt.Errorf("has host %q, which is no name or address", host)
	}
	a.Network, a.Host, a.Port = "tcp", host, port
	return nil
}

// Local reports whether what is sent there stays on this machine.
func (a Address) Local() bool {
	if a.Network == "unix" || a.Host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(a.Host)
	return err == nil && ip.Unmap().IsLoopback()
}

// Dial is the address in the form that package net takes.
func (a Address) Dial() string {
	if a.Network == "unix" {
		return a.Path
	}
	return net.JoinHostPort(a.Host, a.Port)
}

// CheckDial says why nobody can be called there. A socket that does not exist yet is no fault: its server may come later.
func (a Address) CheckDial() error {
	if a.Network == "tcp" {
		if a.Host == "" || a.Port == "0" {
			return fmt.Errorf("address %q lacks a host or a port to call", a.Text)
		}
		return nil
	}
	if strings.HasPrefix(a.Path, "@") {
		return nil
	}
	info, err := os.Stat(a.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("address %q: %w", a.Text, err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("address %q is %s, not a socket", a.Text, regular.Kind(info.Mode()))
	}
	return nil
}
