package main

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	entropygrpc "qr-gateway/entropy/grpc"
)

const unitFile = root + "/configs/systemd/qr-entropy.service"

// unitCommand is the command line of the unit with its own settings, but for what change replaces.
func unitCommand(t *testing.T, change map[string]string) []string {
	t.Helper()
	text, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{}
	line := regexp.MustCompile(`(?m)^Environment=(.*)$`).FindSubmatch(text)
	for _, f := range strings.Fields(string(line[1])) {
		k, v, _ := strings.Cut(f, "=")
		vars[k] = v
	}
	for k, v := range change {
		vars[k] = v
	}
	var args []string
	for _, w := range strings.Fields(string(regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindSubmatch(text)[1])) {
		switch {
		case strings.HasPrefix(w, "${"):
			args = append(args, vars[strings.Trim(w, "${}")])
		case strings.HasPrefix(w, "$"):
			args = append(args, strings.Fields(vars[w[1:]])...)
		default:
			args = append(args, w)
		}
	}
	return args[1:]
}

// TestEntropyServeUnit runs the command line of the systemd unit: it tells systemd that it is ready, and serves until it is told to stop.
func TestEntropyServeUnit(t *testing.T) {
	dir, err := os.MkdirTemp("", "qr") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "notify"))
	address := "unix://" + filepath.Join(dir, "entropy.sock")

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var stderr strings.Builder
	go func() {
		ended <- run(ctx, unitCommand(t, map[string]string{"LISTEN": address, "EXTRA": "--device lab-1 --reflection"}), new(strings.Builder), &stderr)
	}()
	_ = notify.SetReadDeadline(time.Now().Add(20 * time.Second))
	said := make([]byte, 100)
	n, err := notify.Read(said)
	if err != nil || string(said[:n]) != "READY=1" {
		t.Fatalf("systemd hears %q, %v", said[:n], err)
	}
	if info, err := os.Lstat(filepath.Join(dir, "entropy.sock")); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("socket: %v, %v", info, err)
	}
	cfg := entropygrpc.DefaultConfig()
	cfg.Address = address
	src, err := entropygrpc.Open(ctx, "lab", cfg, entropygrpc.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := src.Draw(ctx, make([]byte, 20480))
	if err != nil || b.Device != "lab-1" || !b.Echoed {
		t.Errorf("draw: %+v, %v", b, err)
	}
	_ = src.Close()
	stop()
	if status := <-ended; status != 0 {
		t.Errorf("exit status %d\n%s", status, stderr.String())
	}
}

// TestEntropyServeSignal: the process ends well at SIGTERM, as the published examples do.
func TestEntropyServeSignal(t *testing.T) {
	gateway := os.Getenv("QR_TEST_GATEWAY")
	if gateway == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("QR_TEST_GATEWAY is not set")
		}
		t.Skip("QR_TEST_GATEWAY is not set: eval \"$(make -s test-env)\"")
	}
	cmd := exec.Command(gateway, "entropy", "serve", "--listen", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "listening on 127.0.0.1:") {
		t.Errorf("%q, %v", line, err)
	}
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestEntropyServeVerifiesUnit lets systemd read the unit, where it is installed.
func TestEntropyServeVerifiesUnit(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd is not installed")
	}
	text, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "qr-entropy.service")
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "/usr/local/bin/qr-gateway", "/bin/true", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(tool, "verify", path).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
