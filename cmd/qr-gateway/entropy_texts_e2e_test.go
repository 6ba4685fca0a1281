package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestSeededMockRepeats: the same computed bytes give the same text, in a process of its own each time.
func TestSeededMockRepeats(t *testing.T) {
	t.Parallel()
	file := entropyConfig(t, "  sources:\n    - {name: computed, type: mock, seed: 42}\n    - {name: other, type: mock, seed: 43}\n")
	texts := map[string]string{}
	for run := range 2 {
		s := start(t, file)
		for _, name := range []string{"computed", "other"} {
			for _, mode := range []string{"plain", "lookahead"} {
				got := s.text(t, chat("Begin a story.", 8, map[string]any{"qr_entropy_source": name, "qr_decoder": mode, "qr_temperature": 1.2, "qr_top_p": 1}))
				if key := name + mode; run == 0 {
					texts[key] = got
				} else if texts[key] != got {
					t.Errorf("%s, %s: first %q, then %q", name, mode, texts[key], got)
				}
			}
		}
		s.stop(t)
	}
	if texts["computedplain"] == texts["otherplain"] {
		t.Errorf("two seeds gave the same text: %q", texts["otherplain"])
	}
}

// TestGenerateWithSources runs alone, since `generate` uses every core: a source of the command line decides the text, and it repeats; one that is not there is named.
func TestGenerateWithSources(t *testing.T) {
	generate := func(more ...string) (string, error) {
		args := append([]string{"generate", "--model", need(t, "QR_TEST_MODEL"), "--engine", need(t, "QR_TEST_ENGINE"), "--prompt", "Once", "--max-tokens", "8"}, more...)
		out, err := exec.Command(need(t, "QR_TEST_GATEWAY"), args...).CombinedOutput()
		return string(out), err
	}
	texts := map[string]string{}
	for _, source := range []string{"mock,seed=3", "mock,name=lab,seed=4", "mock,seed=3"} {
		out, err := generate("--entropy", source)
		text, summary, _ := strings.Cut(out, "8 tokens")
		if err != nil || texts[source] != "" && texts[source] != text || !strings.Contains(summary, "entropy ") {
			t.Errorf("%s: %q, then %q, %v", source, texts[source], out, err)
		}
		texts[source] = text
	}
	if texts["mock,seed=3"] == texts["mock,name=lab,seed=4"] {
		t.Errorf("two seeds gave the same text: %q", texts["mock,seed=3"])
	}
	if out, err := generate("--entropy", "mock,seed=3", "--entropy-source", "system"); err != nil || !strings.Contains(out, "entropy system") {
		t.Errorf("another source was named: %q, %v", out, err)
	}
	for _, bad := range [][]string{{"--entropy", "mock,sed=3"}, {"--entropy-source", "lab"}, {"--entropy", "none_such"}} {
		if out, err := generate(bad...); err == nil || !strings.Contains(out, "error: ") {
			t.Errorf("%v: %q, %v", bad, out, err)
		}
	}
}
