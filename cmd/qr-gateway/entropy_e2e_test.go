package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"qr-gateway/backends"
)

// entropyServer is a running `qr-gateway entropy serve` on a Unix socket.
type entropyServer struct {
	cmd   *exec.Cmd
	log   *tail
	ended chan struct{}
}

// serveEntropy starts one and waits until it listens.
func serveEntropy(t *testing.T, socket string) *entropyServer {
	t.Helper()
	e := &entropyServer{
		cmd: exec.Command(need(t, "QR_TEST_GATEWAY"), "entropy", "serve", "--source", "system", "--listen", "unix://"+socket),
		log: newTail(), ended: make(chan struct{}),
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	e.cmd.Stdout, e.cmd.Stderr = w, w
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var wg sync.WaitGroup
	wg.Go(func() { e.log.follow(r) })
	wg.Go(func() { _ = e.cmd.Wait(); close(e.ended) })
	t.Cleanup(func() { e.end(syscall.SIGKILL); wg.Wait(); r.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if _, err := e.log.wait(ctx, regexp.MustCompile(`listening on`)); err != nil {
		t.Fatalf("entropy server did not start: %v\n%s", err, e.log)
	}
	return e
}

// end ends the server, frozen or not.
func (e *entropyServer) end(sig syscall.Signal) {
	_ = e.cmd.Process.Signal(sig)
	<-e.ended
}

// entropyConfig is configFile with sources.
func entropyConfig(t *testing.T, sources string) string {
	t.Helper()
	file := configFile(t, "    context: 4096\n")
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("entropy:\n" + sources); err != nil {
		t.Fatal(err)
	}
	return file
}

// shortDir is a folder whose path leaves room for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "qr-e2e-") //nolint:usetesting // its paths have the test's name in them, and are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// endless keeps the model from ending its text: its two end-of-text tokens are biased away.
func endless(more map[string]any) map[string]any {
	more["logit_bias"] = map[string]int{"0": -100, "2": -100}
	return more
}

// followed is what came of a streamed answer.
type followed struct {
	tokens int // chunks with text
	qr     *backends.DecodeStats
	fault  string // code of the error event
	text   string // of it
	done   bool
}

// follow streams an answer; begun is told after a few pieces of text.
func (s *server) follow(ctx context.Context, body map[string]any, begun func()) (followed, error) {
	var f followed
	body["stream"] = true
	res, err := s.open(ctx, body)
	if err != nil {
		return f, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return f, fmt.Errorf("status %d", res.StatusCode)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if err := f.take(data); err != nil {
			return f, err
		}
		if f.tokens == 4 && begun != nil {
			begun()
			begun = nil
		}
	}
	return f, lines.Err()
}

func (f *followed) take(data string) error {
	if data == "[DONE]" {
		f.done = true
		return nil
	}
	var chunk struct {
		Choices []struct{ Delta struct{ Content string } }
		QR      *backends.DecodeStats
		Error   *struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(data), &chunk); err != nil {
		return fmt.Errorf("chunk %s: %w", data, err)
	}
	if len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != "" {
		f.tokens++
	}
	if chunk.QR != nil {
		f.qr = chunk.QR
	}
	if chunk.Error != nil {
		f.fault, f.text = chunk.Error.Code, chunk.Error.Message
	}
	return nil
}

// stats are the qr object of a whole answer.
func (s *server) stats(ctx context.Context, body map[string]any) (int, *backends.DecodeStats, string) {
	status, b, err := s.post(ctx, body)
	if err != nil {
		return 0, nil, err.Error()
	}
	var a struct{ QR *backends.DecodeStats }
	if err := json.Unmarshal(b, &a); err != nil {
		return status, nil, err.Error()
	}
	return status, a.QR, string(b)
}

// get reads a page of the server as JSON.
func (s *server) get(t *testing.T, path string, into any) {
	t.Helper()
	res, err := http.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(into); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d, %v", path, res.StatusCode, err)
	}
}

// lane is one source on the same entropy server.
func lane(name, policy, socket string) string {
	text := fmt.Sprintf("    - {name: %s, type: grpc, address: %q, policy: %s, timeout: 1s, breaker_open: 500ms", name, "unix://"+socket, policy)
	if policy == "fallback" {
		text += ", fallback: system"
	}
	return text + "}\n"
}

// policyTokens are those of an answer in whose midst an entropy server stops.
const policyTokens = 40

// TestEntropyServerStops stops the entropy server while three answers are under way, one for each policy, and starts it again.
func TestEntropyServerStops(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "frozen": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := filepath.Join(shortDir(t), "q.sock")
			source := serveEntropy(t, socket)
			s := start(t, entropyConfig(t, "  default: soft\n  sources:\n"+
				lane("hard", "strict", socket)+lane("soft", "fallback", socket)+lane("watched", "observe", socket)))
			s.stopInMidStream(t, source, how)
			s.checkDegraded(t)
			if how == syscall.SIGSTOP {
				_ = source.cmd.Process.Signal(syscall.SIGCONT)
			} else {
				serveEntropy(t, socket)
			}
			s.checkRecovery(t)
		})
	}
}

// stopInMidStream checks what each policy makes of it.
func (s *server) stopInMidStream(t *testing.T, source *entropyServer, how syscall.Signal) {
	t.Helper()
	var begun, ended sync.WaitGroup
	got := map[string]*followed{"hard": {}, "soft": {}, "watched": {}}
	begun.Add(len(got))
	for name, f := range got {
		ended.Go(func() {
			body := chat("Tell a long story.", policyTokens, endless(map[string]any{"qr_entropy_source": name, "qr_diagnostic_mode": true, "qr_decoder": "plain"}))
			var err error
			once := sync.OnceFunc(begun.Done)
			*f, err = s.follow(t.Context(), body, once)
			once()
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	begun.Wait()
	if how == syscall.SIGKILL {
		source.end(how)
	} else if err := source.cmd.Process.Signal(how); err != nil {
		t.Fatal(err)
	}
	ended.Wait()
	for _, name := range []string{"hard", "watched"} {
		if f := got[name]; f.fault != "entropy_unavailable" || f.done || f.tokens >= policyTokens || !strings.Contains(f.text, name) {
			t.Errorf("%s: %+v; want an error event and no end", name, f)
		}
	}
	f := got["soft"]
	if f.fault != "" || !f.done || f.qr == nil {
		t.Fatalf("soft: %+v; want a whole answer", f)
	}
	checkFlags(t, f.qr)
}

// checkFlags: from the first token of the second choice on, every one says so, and the account adds up.
func checkFlags(t *testing.T, s *backends.DecodeStats) {
	t.Helper()
	flagged, own := 0, 0
	for i, r := range s.Records {
		switch {
		case r.Fallback && r.Source == "system":
			flagged++
		case r.Fallback || r.Source != "soft" || flagged > 0:
			t.Errorf("token %d: source %s, fallback %v, after %d of the second choice", i, r.Source, r.Fallback, flagged)
		default:
			own++
		}
	}
	if s.Tokens != policyTokens || flagged+own != policyTokens || flagged == 0 || own < 4 || s.FallbackTokens != flagged || s.EntropySource != "soft" || s.Policy != "fallback" {
		t.Errorf("%d of the source's own, %d of the second choice; %d tokens, %d by the second choice, source %s, policy %s",
			own, flagged, s.Tokens, s.FallbackTokens, s.EntropySource, s.Policy)
	}
}

// checkDegraded looks at everything that tells of an outage.
func (s *server) checkDegraded(t *testing.T) {
	t.Helper()
	status, _, body := s.stats(t.Context(), chat("Hello", 4, map[string]any{"qr_entropy_source": "hard"}))
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "entropy_unavailable") || !strings.Contains(body, "strict") || !strings.Contains(body, "hard") {
		t.Errorf("strict, not streamed: status %d: %s", status, body)
	}
	var page struct {
		Data []struct {
			Name      string
			Degraded  bool
			LastUsed  string `json:"last_used"`
			Fallbacks map[string]int
			LastError string `json:"last_error"`
		}
	}
	s.get(t, "/v1/qr/entropy", &page)
	for _, e := range page.Data {
		if want := e.Name != "system"; e.Degraded != want || (e.LastError != "") != want {
			t.Errorf("page: %+v", e)
		}
		if e.Name == "soft" && (e.LastUsed != "system" || len(e.Fallbacks) == 0) {
			t.Errorf("page: %+v", e)
		}
	}
	var health map[string]any
	s.get(t, "/health/entropy", &health)
	if health["rpc_ok"] != false || health["last_source_used"] != "system" || health["primary_name"] != "soft" {
		t.Errorf("health: %v", health)
	}
	if g := s.gauges(t); g[`qr_gateway_entropy_degraded{entropy_source="soft"}`] != 1 || g[`qr_gateway_entropy_degraded{entropy_source="system"}`] != 0 {
		t.Error("metrics don't tell of the outage")
	}
	if n := strings.Count(s.log.String(), `"event":"entropy.degraded"`); n != 3 {
		t.Errorf("%d lines tell of three outages", n)
	}
}

// checkRecovery waits until each source serves by itself again.
func (s *server) checkRecovery(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, name := range []string{"hard", "soft", "watched"} {
		for {
			status, qr, body := s.stats(ctx, chat("Hello", 4, map[string]any{"qr_entropy_source": name}))
			if status == http.StatusOK && qr.FallbackTokens == 0 {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("%s does not recover: status %d: %s", name, status, body)
			}
		}
	}
	if g := s.gauges(t); g[`qr_gateway_entropy_degraded{entropy_source="soft"}`] != 0 {
		t.Error("metrics still tell of the outage")
	}
	if n := strings.Count(s.log.String(), `"event":"entropy.recovered"`); n != 3 {
		t.Errorf("%d lines tell of three recoveries", n)
	}
}

// TestAlarmsFollowThePolicy: bytes that a health test finds fault with end the answer, are replaced, or are used and flagged.
func TestAlarmsFollowThePolicy(t *testing.T) {
	t.Parallel()
	stuck := func(name, policy, more string) string {
		return fmt.Sprintf("    - {name: %s, type: mock_biased, fault: stuck, value: 7, policy: %s%s}\n", name, policy, more)
	}
	s := start(t, entropyConfig(t, "  sources:\n"+stuck("hard", "strict", "")+stuck("soft", "fallback", ", fallback: system")+stuck("watched", "observe", "")))
	body := func(source string) map[string]any {
		return chat("Hello", 6, endless(map[string]any{"qr_entropy_source": source, "qr_sample_count": 1000}))
	}
	if status, _, text := s.stats(t.Context(), body("hard")); status != http.StatusServiceUnavailable || !strings.Contains(text, "health") {
		t.Errorf("strict: status %d: %s", status, text)
	}
	if status, qr, text := s.stats(t.Context(), body("soft")); status != http.StatusOK || qr.FallbackTokens != 6 || qr.Tokens != 6 {
		t.Errorf("fallback: status %d: %s", status, text)
	}
	status, qr, text := s.stats(t.Context(), body("watched"))
	if status != http.StatusOK || qr.FallbackTokens != 0 || qr.FlaggedTokens["repetition"] != 6 {
		t.Errorf("observe: status %d: %s", status, text)
	}
}

// TestNumbersOfTheServer takes the numbers that an entropy server makes itself, and bytes that were asked for ahead.
func TestNumbersOfTheServer(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(shortDir(t), "q.sock")
	serveEntropy(t, socket)
	s := start(t, entropyConfig(t, "  sources:\n"+lane("q", "strict", socket)))
	status, qr, body := s.stats(t.Context(), chat("Hello", 6, endless(map[string]any{"qr_entropy_source": "q", "qr_amplifier": "server", "qr_diagnostic_mode": true})))
	if status != http.StatusOK || qr.Amplifier != "server" || len(qr.Records) != 6 || qr.Records[0].Integrated == 0 {
		t.Errorf("numbers: status %d: %s", status, body)
	}
	status, qr, body = s.stats(t.Context(), chat("Hello", 6, endless(map[string]any{"qr_entropy_source": "q", "qr_entropy_prefetch": true, "qr_diagnostic_mode": true})))
	if status != http.StatusOK || qr.Pipelined != 6 || !qr.Records[3].Pipelined || qr.Records[3].Nonce == "" || qr.Records[3].Echoed == nil || !*qr.Records[3].Echoed {
		t.Errorf("asked ahead: status %d: %s", status, body)
	}
	status, qr, body = s.stats(t.Context(), chat("Hello", 6, endless(map[string]any{"qr_entropy_source": "q", "qr_diagnostic_mode": true})))
	if status != http.StatusOK || qr.Pipelined != 0 || qr.Records[3].RequestedNS >= qr.Records[3].ArrivedNS || qr.Records[3].ServerNS == 0 {
		t.Errorf("just in time: status %d: %s", status, body)
	}
	if _, _, body := s.stats(t.Context(), chat("Hello", 6, map[string]any{"qr_amplifier": "server"})); !strings.Contains(body, "qr_amplifier") {
		t.Errorf("a source without a server: %s", body)
	}
}

// TestSourceThatCantBeOpened is refused at the start, with its name and the reason.
func TestSourceThatCantBeOpened(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"address":   "    - {name: broken, type: grpc, address: \"not an address\"}\n",
		"directory": fmt.Sprintf("    - {name: broken, type: replay, path: %q}\n", t.TempDir()),
		"option":    "    - {name: broken, type: mock, sed: 4}\n",
	} {
		cmd := exec.Command(need(t, "QR_TEST_GATEWAY"), "serve", "--config", entropyConfig(t, "  sources:\n"+line), "--listen", "127.0.0.1:0")
		out, err := cmd.CombinedOutput()
		if err == nil || !regexp.MustCompile(`(?m)^error: .*(broken|entropy\.sources\[0\])`).Match(out) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
